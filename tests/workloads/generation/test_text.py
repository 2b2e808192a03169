from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headpond_workloads.generation.engine.text import TextStream

texts = (
    st.text(max_size=60)
    | st.text(alphabet="ab", max_size=60)
    | st.text("é👋\u200d東a", max_size=30)
)
stops = st.lists(
    st.text(alphabet="ab", min_size=1, max_size=6) | st.text(min_size=1, max_size=3), max_size=4
)
cuts = st.lists(st.integers(min_value=0, max_value=400), max_size=40)


def split(raw: bytes, cuts: list[int]) -> list[bytes]:
    """Cut at arbitrary bytes, as tokens do."""
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    return [raw[first:last] for first, last in pairwise(edges)]


def cut_at_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """Read character by character until the text ends with a stop string."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


@given(text=texts, stops=stops, cuts=cuts)
def test_deltas_join_to_the_text_before_the_first_stop(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    stream = TextStream(stops)
    partials = [stop[:count] for stop in stops for count in range(1, len(stop))]
    shown, given_in = "", b""
    for raw in split(text.encode(), cuts):
        shown += stream.push(raw)
        given_in += raw
        so_far = given_in.decode(errors="ignore")
        assert so_far.startswith(shown)
        # What may still become a stop string is not shown yet.
        open_ended = max((len(each) for each in partials if so_far.endswith(each)), default=0)
        assert stream.stopped or len(shown) == len(so_far) - open_ended
    shown += stream.finish()
    assert (shown, stream.stopped) == cut_at_first_stop(text, stops)


@given(text=texts, stops=stops, cuts=cuts)
def test_a_stop_string_is_never_shown(text: str, stops: list[str], cuts: list[int]) -> None:
    stream = TextStream(stops)
    shown = "".join(stream.push(raw) for raw in split(text.encode(), cuts)) + stream.finish()
    assert not any(stop in shown for stop in stops)


@given(raw=st.binary(max_size=40), cuts=cuts)
def test_bytes_that_are_no_text_become_replacement_characters(raw: bytes, cuts: list[int]) -> None:
    stream = TextStream()
    shown = "".join(stream.push(part) for part in split(raw, cuts)) + stream.finish()
    # A character that is cut off by the end is left out, whatever was before it is there.
    assert raw.decode(errors="replace") in (shown, shown + "\ufffd")


def test_only_whole_characters_are_given_out() -> None:
    stream = TextStream()
    assert [stream.push(bytes([byte])) for byte in "é👋".encode()] == ["", "é", "", "", "", "👋"]


def test_text_held_back_for_a_stop_string_comes_when_it_goes_on_otherwise() -> None:
    stream = TextStream(["</end>"])
    assert stream.push(b"a</e") == "a"
    assert stream.push(b"n</en") == "</en"
    assert stream.push(b"x") == "</enx"


def test_text_held_back_at_the_end_is_not_lost() -> None:
    stream = TextStream(["stop"])
    assert stream.push(b"please sto") == "please "
    assert stream.finish() == "sto"


def test_the_stop_string_can_be_shown() -> None:
    stream = TextStream(["END", "DO"], include_stop=True)
    assert stream.push(b"a EN") == "a "
    assert stream.push(b"DO b") == "END"
    assert (stream.stopped, stream.finish()) == (True, "")


def test_a_stop_string_counts_from_where_it_may() -> None:
    stream = TextStream(["END"])
    assert stream.push(b"END EN", may_stop=False) == "END EN"
    assert stream.push(b"D ") == "D "
    assert stream.push(b"END") == ""
    assert stream.stopped


def test_nothing_follows_a_stop_string() -> None:
    stream = TextStream(["END"])
    assert stream.push(b"one END two") == "one "
    assert stream.stopped
    assert stream.push(b" three") + stream.finish() == ""


def test_of_overlapping_stop_strings_the_one_complete_first_counts() -> None:
    whole, by_character = TextStream(["abcd", "bc"]), TextStream(["abcd", "bc"])
    assert whole.push(b"xabcd") == "xa"
    assert "".join(by_character.push(bytes([byte])) for byte in b"xabcd") == "xa"
