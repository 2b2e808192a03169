"""Numbered appends: in order, once, and without waiting for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.errors import InvalidRequest
from headpond_workloads.speech.dialect_realtime_sequence import (
    MAX_AHEAD,
    MAX_HELD,
    MAX_HELD_BYTES,
    MAX_WAIT_S,
    Gap,
    Numbered,
    Sequencer,
)
from workloads.speech.talk import Talk


def numbers(released: list[Numbered | Gap]) -> list[int]:
    return [each.sequence for each in released if isinstance(each, Numbered)]


@given(
    st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.randoms(use_true_random=False)))
)
def test_a_little_disorder_is_put_in_order(given: tuple[int, object]) -> None:
    count, random = given
    order = sorted(range(1, count + 1), key=lambda at: at + random.uniform(0, MAX_HELD / 4))  # type: ignore[attr-defined]
    sequencer = Sequencer()
    found: list[Numbered | Gap] = []
    for number in order:
        found += sequencer.offer(number, bytes([number]), 0.0)
        found += sequencer.offer(number, b"again", 0.0)
    assert found == [Numbered(number, bytes([number])) for number in range(1, count + 1)]
    assert sequencer.expected == count + 1


@given(st.lists(st.tuples(st.integers(1, 120), st.floats(0, 0.5)), max_size=120))
def test_what_is_released_only_grows_and_gaps_are_told(arrivals: list[tuple[int, float]]) -> None:
    sequencer = Sequencer()
    now_s, found = 0.0, []
    for number, later_s in arrivals:
        now_s += later_s
        found += sequencer.offer(number, b"x", now_s)
    found += sequencer.flush(now_s)
    expected = 1
    for each in found:
        if isinstance(each, Gap):
            assert each.expected == expected < each.found
            expected = each.found
        else:
            assert each.sequence == expected
            expected += 1
    assert {each.sequence for each in found if isinstance(each, Numbered)} <= {
        n for n, _ in arrivals
    }
    assert sequencer.overdue(now_s + 10) == []


def test_a_missing_append_is_waited_for_as_long_as_agreed() -> None:
    sequencer = Sequencer()
    assert numbers(sequencer.offer(1, b"", 0.0)) == [1]
    assert sequencer.offer(3, b"", 0.0) == []
    assert sequencer.overdue(MAX_WAIT_S) == []
    assert sequencer.overdue(MAX_WAIT_S + 0.1) == [Gap(2, 3), Numbered(3, b"")]
    assert sequencer.offer(2, b"late", 2.0) == []
    assert numbers(sequencer.offer(4, b"", 2.0)) == [4]


def test_not_too_much_is_held() -> None:
    sequencer = Sequencer()
    for number in range(2, 2 + MAX_HELD):
        assert sequencer.offer(number, b"", 0.0) == []
    released = sequencer.offer(2 + MAX_HELD, b"", 0.0)
    assert released[0] == Gap(1, 2)
    assert len(released) == 2 + MAX_HELD
    large = Sequencer()
    assert large.offer(5, bytes(MAX_HELD_BYTES + 1), 0.0)[0] == Gap(1, 5)


def test_who_numbers_goes_on_numbering() -> None:
    sequencer = Sequencer()
    assert numbers(sequencer.offer(1, b"", 0.0)) == [1]
    with pytest.raises(InvalidRequest, match="were numbered") as refusal:
        sequencer.offer(None, b"", 0.0)
    assert refusal.value.param == "sequence"
    assert numbers(sequencer.offer(2, b"", 0.0)) == [2]


def test_who_does_not_number_cannot_begin_to() -> None:
    sequencer = Sequencer()
    assert [numbers(sequencer.offer(None, b"", 0.0)) for _ in range(3)] == [[1], [2], [3]]
    for sequence in (1, 4):
        with pytest.raises(InvalidRequest, match="were not numbered") as refusal:
            sequencer.offer(sequence, b"", 0.0)
        assert refusal.value.param == "sequence"
    assert numbers(sequencer.offer(None, b"", 0.0)) == [4]


def test_a_number_far_beyond_all_others_is_refused_and_nothing_is_lost() -> None:
    sequencer = Sequencer()
    assert numbers(sequencer.offer(1, b"", 0.0)) == [1]
    for cleared in (False, True):
        if cleared:
            sequencer.restart()
        with pytest.raises(InvalidRequest, match="the highest so far") as refusal:
            sequencer.offer(1_000_000_000, b"", 0.0)
        assert refusal.value.param == "sequence"
    assert numbers(sequencer.offer(2, b"", 9.0)) == [2]
    assert sequencer.offer(2 + MAX_AHEAD, b"", 9.0) == []
    assert numbers(sequencer.offer(3, b"", 9.0)) == [3]
    sequencer.rewind(2)
    sequencer.restart()
    assert numbers(sequencer.offer(3 + MAX_AHEAD, b"", 9.0)) == [3 + MAX_AHEAD]


def test_after_a_loss_only_the_append_that_is_needed_counts() -> None:
    sequencer = Sequencer()
    for number in range(1, 9):
        sequencer.offer(number, b"", 0.0)
    sequencer.rewind(4)
    assert sequencer.offer(9, b"", 0.0) == []
    assert sequencer.overdue(10.0) == []
    assert [numbers(sequencer.offer(number, b"", 20.0)) for number in (4, 5, 6)] == [[4], [5], [6]]
    sequencer.rewind(5)
    sequencer.restart()  # the client has nothing to send again
    assert numbers(sequencer.offer(12, b"", 21.0)) == [12]


def test_a_gap_is_an_error_and_the_session_goes_on() -> None:
    talk = Talk()
    talk.events()
    talk.append(b"\1" * 48, sequence=1)
    talk.append(b"\4" * 48, sequence=4)
    talk.append(b"\3" * 48, sequence=3)
    assert talk.sound() == b"\1" * 48
    talk.now_s += 2
    (gap,) = talk.tick()
    assert gap["error"]["code"] == "sequence_gap"
    assert (gap["error"]["expected_sequence"], gap["error"]["next_sequence"]) == (2, 3)
    assert gap["error"]["param"] == "sequence"
    assert talk.sound() == b"\3" * 48 + b"\4" * 48
    talk.append(b"\7" * 4800, sequence=7, event_id="e7")
    (gap,) = talk.send("input_audio_buffer.commit", event_id="c")
    assert gap["error"]["expected_sequence"] == 5
    assert len(talk.sound()) == 4800
