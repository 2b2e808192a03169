"""Live items: admitted while all can be kept up with, and never held up by others."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from headpond.admission.queue import FairQueue
from headpond.batching import Feed
from headpond.engine import Progress
from headpond.errors import Overloaded
from headpond.scheduling.keeping_up import RETRY_AFTER_S, KeepingUp
from headpond.scheduling.residency import Residency
from headpond.scheduling.sequence import Item, LiveCall

_by_last_step = attrgetter("last_step")


class LiveItems:
    """The claims of items that get their input as it comes, before those that wait whole."""

    def __init__(self, feed: Feed, queue: FairQueue[Item], residency: Residency) -> None:
        """Start with nothing measured, and look at the scheduler's own parts.

        Args:
            feed: How fast input comes.
            queue: What waits.
            residency: What runs.
        """
        self._keeping_up = KeepingUp(feed)
        self._queue = queue
        self._residency = residency

    def observe(self, results: Sequence[Progress[object]], took_s: float) -> None:
        """Take in how far the items of a step went, and the seconds that it took."""
        units = [progress.units for progress in results if progress.units]
        self._keeping_up.observe(len(units), sum(units), took_s)

    def check(self, call: LiveCall) -> None:
        """Refuse a live item that would have to wait, or make others late.

        Raises:
            Overloaded: No slot is free, or the engine could not keep up.
        """
        if (item := call.fed) is None:
            return
        if len(self._queue) >= self._residency.free_slots or not self._residency.has_room(item):
            raise Overloaded("no slot is free for a live stream", retry_after_s=RETRY_AFTER_S)
        starting = sum(each.inlet is not None for each in self._queue)
        self._keeping_up.check(self._running() + starting)

    def beside(self, group: list[Item]) -> list[Item]:
        """Return a group without those for which live items leave no room: longest first."""
        live = self._running()
        if not live:
            return group
        others = sorted((item for item in group if item.inlet is None), key=_by_last_step)
        kept = others[: self._keeping_up.room_beside(live)]
        return [item for item in group if item.inlet is not None or item in kept]

    def _running(self) -> int:
        return sum(item.inlet is not None for item in self._residency.roster)
