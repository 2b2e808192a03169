"""Replicas that stand still: who is given up, when, and what becomes of calls they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headpond.call import ModelCard
from headpond.hop import ReplicaStatus
from headpond.lane import LaneAddress
from headpond.roll_call import SILENT_POLLS, RollCall

STATUS = ReplicaStatus(
    card=ModelCard(name="toy", workload="toy", bundles=("toy@1",), created_s=0, limits={}),
    reason=None,
)


class Call:
    """One call that is under way."""

    def __init__(
        self,
        roll: RollCall,
        replica: str | None,
        stream: int | None = None,
        number: int | None = None,
    ) -> None:
        self.given_up = 0
        self._kept = roll.waiting(self._give_up, stream, number)
        self._kept.__enter__().replica = replica

    def _give_up(self) -> None:
        self.given_up += 1

    def end(self) -> None:
        self._kept.__exit__(None, None, None)


@pytest.fixture
def roll() -> RollCall:
    roll = RollCall()
    roll.take({"a": STATUS, "b": STATUS}, ())
    return roll


def miss(roll: RollCall, polls: int) -> None:
    """Let `a` not answer so often."""
    for _ in range(polls):
        roll.take({"b": STATUS}, {"a"})


def test_one_slow_answer_changes_nothing(roll: RollCall) -> None:
    call = Call(roll, "a")
    miss(roll, SILENT_POLLS - 1)
    assert len(roll.statuses) == 2
    roll.take({"a": STATUS, "b": STATUS}, ())
    miss(roll, SILENT_POLLS - 1)
    assert (len(roll.statuses), call.given_up) == (2, 0)


def test_calls_of_a_silent_replica_are_given_up_and_no_others(roll: RollCall) -> None:
    held, other, over = Call(roll, "a"), Call(roll, "b"), Call(roll, "a")
    over.end()
    miss(roll, SILENT_POLLS)
    assert (held.given_up, other.given_up, over.given_up) == (1, 0, 0)
    assert len(roll.statuses) == 1
    assert not roll.nobody


def test_a_call_that_nobody_has_taken_in_is_given_up_when_somebody_is_silent(
    roll: RollCall,
) -> None:
    lost = Call(roll, None)
    miss(roll, SILENT_POLLS - 1)
    late = Call(roll, None)
    miss(roll, 1)
    assert (lost.given_up, late.given_up) == (1, 0)


def test_whole_answers_are_lost_with_the_replica_that_holds_them_and_no_other(
    roll: RollCall,
) -> None:
    holding = {name: replace(STATUS, holds=frozenset({n})) for n, name in enumerate("ab")}
    first, second = (Call(roll, None, number=number) for number in range(2))
    for _ in range(SILENT_POLLS):
        roll.take(holding, ())
    for _ in range(SILENT_POLLS):
        assert (first.given_up, second.given_up) == (0, 0)
        roll.take({"b": holding["b"]}, {"a"})
    assert (first.given_up, second.given_up) == (1, 0)


def test_a_stream_is_lost_with_the_replica_it_comes_from_and_no_other() -> None:
    roll = RollCall()
    lanes = {name: LaneAddress(host="h", port=1, token=name.encode()) for name in "ab"}
    said = {name: replace(STATUS, lane=lane) for name, lane in lanes.items()}
    roll.take(said, ())
    calls = {name: Call(roll, None, stream=number) for number, name in enumerate("ab")}
    for number, name in enumerate("ab"):
        roll.comes_over(number, lanes[name])
    for _ in range(SILENT_POLLS):
        roll.take({"b": said["b"]}, {"a"})
    assert (calls["a"].given_up, calls["b"].given_up) == (1, 0)
    calls["b"].end()
    roll.comes_over(1, lanes["b"])


def test_a_call_that_waits_for_a_place_is_not_given_up_while_all_answer(roll: RollCall) -> None:
    waiting = Call(roll, None)
    for _ in range(2 * SILENT_POLLS):
        roll.take({"a": STATUS, "b": STATUS}, ())
    assert not waiting.given_up


def test_who_comes_back_is_called_again(roll: RollCall) -> None:
    miss(roll, SILENT_POLLS)
    assert set(roll.unfit) == {"a"}
    roll.take({"a": STATUS, "b": STATUS}, ())
    assert not roll.unfit
    assert len(roll.statuses) == 2


def test_who_cannot_serve_is_passed_over(roll: RollCall) -> None:
    roll.take({"a": STATUS, "b": replace(STATUS, reason="stuck")}, ())
    assert set(roll.unfit) == {"b"}
    assert [status.reason for status in roll.statuses] == [None, "stuck"]


def test_who_is_gone_is_no_longer_waited_for(roll: RollCall) -> None:
    miss(roll, SILENT_POLLS)
    roll.take({"b": STATUS}, ())
    assert len(roll.statuses) == 1
    roll.take({}, ())
    assert (list(roll.statuses), roll.nobody) == ([], False)


def test_where_all_are_silent_there_is_nobody(roll: RollCall) -> None:
    for _ in range(SILENT_POLLS):
        roll.take({}, {"a", "b"})
    assert roll.nobody
    assert not roll.statuses


def test_who_has_never_answered_is_missed_too() -> None:
    roll = RollCall()
    for _ in range(SILENT_POLLS):
        roll.take({}, {"new"})
    assert (list(roll.statuses), roll.nobody) == ([], True)
