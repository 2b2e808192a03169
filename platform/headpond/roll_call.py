"""The roll call: which replicas of an application answer, and who waits for one that does not.

A process that stands still (stopped, swapped out, caught in a library that holds Python's
lock) closes no connection: calls that it holds would wait until their deadlines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from headpond.hop import ReplicaStatus
from headpond.placement import Placement

SILENT_POLLS = 3
"""So many polls in a row without an answer, and a replica is given up."""


class RollCall:
    """Keeps what replicas last said, and the calls that are under way to them."""

    def __init__(self) -> None:
        """Start with nobody known."""
        self._known: dict[str, ReplicaStatus] = {}
        self._missed: Counter[str] = Counter()
        self._placements: dict[Placement, None] = {}

    @property
    def statuses(self) -> Sequence[ReplicaStatus]:
        """What those who are not given up said last."""
        return [self._known[name] for name in self._known if not self._is_silent(name)]

    @property
    def nobody(self) -> bool:
        """Whether replicas are known, and all of them are given up."""
        return bool(self._known) and all(map(self._is_silent, self._known))

    def take(self, answered: Mapping[str, ReplicaStatus], *, missing: int) -> None:
        """Take in a poll; calls that a replica holds that is given up now are given up, too.

        Args:
            answered: What each replica said that answered in time.
            missing: How many have not answered; those that are gone are not counted.
        """
        absent = [name for name in self._known if name not in answered] if missing else []
        self._missed = Counter({name: self._missed[name] + 1 for name in absent})
        self._known = {**{name: self._known[name] for name in absent}, **answered}
        silent = {name for name in self._known if self._is_silent(name)}
        for placement in list(self._placements):
            placement.polls += placement.replica is None
            nowhere = placement.replica is None and placement.polls >= SILENT_POLLS
            if silent and (nowhere or placement.replica in silent):
                placement.give_up()

    @contextmanager
    def placed(self, give_up: Callable[[], None]) -> Iterator[Placement]:
        """Keep a call's placement while it is under way.

        Args:
            give_up: Ends the waiting for it; called at most once a poll.
        """
        unready = {name for name, status in self._known.items() if status.reason is not None}
        placement = Placement(give_up=give_up, avoid=unready | frozenset(self._missed))
        self._placements[placement] = None
        try:
            yield placement
        finally:
            del self._placements[placement]

    def _is_silent(self, name: str) -> bool:
        return self._missed[name] >= SILENT_POLLS
