"""The roll call: which replicas of an application answer, and who waits for one that does not.

A process that stands still (stopped, swapped out, caught in a library that holds Python's
lock) closes no connection: calls that it holds would wait until their deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headpond.hop import ReplicaStatus
from headpond.lane import LaneAddress

SILENT_POLLS = 3
"""So many polls in a row without an answer, and a replica is given up."""


@dataclass(eq=False, kw_only=True, slots=True)
class Waiting:
    """A call that is under way.

    Attributes:
        give_up: Ends the waiting for it.
        replica: Who has taken it in; None until that is known, for most calls at their end.
        lane: Where it comes from, of a stream; None until it does.
        number: By which replicas say that they hold it, of a whole answer.
        polls: How many polls there were since it was sent that found nobody had.
    """

    give_up: Callable[[], None]
    replica: str | None = None
    lane: LaneAddress | None = None
    number: int | None = None
    polls: int = 0


class RollCall:
    """Keeps what replicas last said, and the calls that are under way to them."""

    def __init__(self) -> None:
        """Start with nobody known."""
        self._said: dict[str, ReplicaStatus] = {}
        self._missed: dict[str, int] = {}
        self._waiting: dict[Waiting, None] = {}
        self._streams: dict[int, Waiting] = {}

    @property
    def statuses(self) -> Sequence[ReplicaStatus]:
        """What those who are not given up said last."""
        return [status for name, status in self._said.items() if not self._is_silent(name)]

    @property
    def nobody(self) -> bool:
        """Whether there are replicas, and all of them are given up."""
        everybody = self._said.keys() | self._missed.keys()
        return bool(everybody) and all(map(self._is_silent, everybody))

    @property
    def unfit(self) -> Collection[str]:
        """Who should be sent nothing new while there are others."""
        unready = {name for name, status in self._said.items() if status.reason is not None}
        return unready | self._missed.keys()

    def take(self, answered: Mapping[str, ReplicaStatus], missing: Collection[str]) -> None:
        """Take in a poll; calls of replicas that are given up now are given up, too.

        Args:
            answered: What each replica said that answered in time.
            missing: Those that have not; who is gone is in neither.
        """
        self._missed = {name: self._missed.get(name, 0) + 1 for name in missing}
        kept = {name: self._said[name] for name in missing if name in self._said}
        self._said = {**kept, **answered}
        silent = {name for name in missing if self._is_silent(name)}
        lanes = {status.lane: name for name, status in self._said.items()}
        holders = {number: name for name, said in self._said.items() for number in said.holds}
        for waiting in list(self._waiting):
            holder = waiting.replica
            if waiting.lane is not None:
                holder = lanes.get(waiting.lane)
            elif waiting.number in holders:
                holder = holders[waiting.number]
            taken = holder is not None or waiting.lane is not None
            waiting.polls = 0 if taken else waiting.polls + 1
            nowhere = not taken and waiting.polls >= SILENT_POLLS
            if silent and (nowhere or holder in silent):
                waiting.give_up()

    def comes_over(self, stream: int, lane: LaneAddress) -> None:
        """Note that a stream comes from a lane, if it is still under way."""
        if stream in self._streams:
            self._streams[stream].lane = lane

    @contextmanager
    def waiting(
        self, give_up: Callable[[], None], stream: int | None = None, number: int | None = None
    ) -> Iterator[Waiting]:
        """Keep a call while it is under way.

        Args:
            give_up: Ends the waiting for it; called at most once a poll.
            stream: Its number, if it is one.
            number: That of a whole answer, as `ReplicaStatus.holds` has it.
        """
        waiting = Waiting(give_up=give_up, number=number)
        self._waiting[waiting] = None
        if stream is not None:
            self._streams[stream] = waiting
        try:
            yield waiting
        finally:
            del self._waiting[waiting]
            if stream is not None:
                del self._streams[stream]

    def _is_silent(self, name: str) -> bool:
        return self._missed.get(name, 0) >= SILENT_POLLS
