"""What a session can say again: nothing twice, nothing left out, or a refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.errors import InvalidRequest
from headpond.http.errors import SessionNotFound
from headpond.http.replay import Replay

SAID = st.lists(st.tuples(st.integers(1, 3), st.text(max_size=20)), max_size=30)


@given(SAID, st.integers(1, 200), st.integers(0, 100))
def test_a_client_gets_what_it_has_missed_or_is_told_that_it_cannot(
    said: list[tuple[int, str]], most_bytes: int, last: int
) -> None:
    replay, numbered, number = Replay(most_bytes), list[tuple[int, str]](), 0
    for step, text in said:
        number += step
        replay.keep(number, text)
        numbered.append((number, text))
    missed = [text for at, text in numbered if at > last]
    if last > number:
        with pytest.raises(InvalidRequest, match="last event"):
            replay.after(last)
        return
    try:
        assert replay.after(last) == missed
    except SessionNotFound:
        assert sum(len(text.encode()) for text in missed) > most_bytes


@given(SAID)
def test_whoever_has_everything_can_always_go_on(said: list[tuple[int, str]]) -> None:
    replay, number = Replay(1), 0
    for step, text in said:
        number += step
        replay.keep(number, text)
    assert replay.after(number) == []


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_however_often_a_client_is_cut_off_it_hears_each_message_once(cuts: list[int]) -> None:
    replay, heard, number = Replay(10_000), list[str](), 0
    for count in cuts:
        reached = len(heard)  # what is said from here on does not reach the client
        for _ in range(count):
            number += 1
            replay.keep(number, f"m{number}")
        heard += replay.after(reached)
    assert heard == [f"m{at}" for at in range(1, number + 1)]


def test_numbers_only_grow() -> None:
    replay = Replay(100)
    replay.keep(2, "two")
    with pytest.raises(ValueError, match="message 2 was said after message 2"):
        replay.keep(2, "two")
