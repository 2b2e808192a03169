"""Keeping up: how many live items the engine can serve as fast as their input comes."""

from __future__ import annotations

from math import exp

from headpond.admission.drain import SURPRISE
from headpond.batching import Feed
from headpond.errors import Overloaded

USED = 0.8
"""The part of the time that steps may take: input comes unevenly, and steps vary."""

RETRY_AFTER_S = 5.0

_MEMORY_S = 10.0

_LEAST_SPREAD = 0.05
"""The least variance of the number of items from which a slope can be read."""

_LEAST_PART = 0.02
"""However well steps share, an item is taken to cost so much of what it costs alone."""


class KeepingUp:
    """Learns what a step takes by the number of its items: `base + each * items`.

    While the engine is busy, input gathers, and steps carry more items: so what has to hold
    is that a step of all live items takes less time than the input it works off took to
    come. The line is fitted by least squares over steps of late, weighed by what they took.
    """

    def __init__(self, feed: Feed) -> None:
        """Start with nothing measured: then nobody is refused.

        Args:
            feed: How fast input comes.
        """
        self._rate_per_s = feed.rate_per_s
        self._weight = self._items = self._seconds = self._units = 0.0
        self._items_sq = self._items_seconds = 0.0

    def observe(self, items: int, units: int, seconds: float) -> None:
        """Take in a step.

        Args:
            items: How many went on.
            units: How far they went together.
            seconds: What it took.
        """
        if not items or seconds <= 0.0:
            return
        seconds = self._bounded(items, seconds)
        decay = exp(-seconds / _MEMORY_S)
        self._weight = self._weight * decay + 1.0
        self._items = self._items * decay + items
        self._seconds = self._seconds * decay + seconds
        self._units = self._units * decay + units
        self._items_sq = self._items_sq * decay + items * items
        self._items_seconds = self._items_seconds * decay + items * seconds

    @property
    def most(self) -> int | None:
        """How many live items can be kept up with; None while unknown: one step may be cold."""
        if self._weight <= 1.0 or not self._units:
            return None
        base_s, each_s = self._line()
        came_s = self._units / self._items / self._rate_per_s
        return max(int((USED * came_s - base_s) / each_s), 1)

    def check(self, live: int) -> None:
        """Refuse one more live item than can be kept up with.

        Args:
            live: Live items that are admitted already.

        Raises:
            Overloaded: One more would make all of them late.
        """
        most = self.most
        if most is not None and live >= most:
            raise Overloaded(
                f"{live} live streams are open, and {most} can be kept up with",
                retry_after_s=RETRY_AFTER_S,
            )

    def room_beside(self, live: int) -> int:
        """Return how many items that are not live a step may carry beside the live; at least 1."""
        most = self.most
        return 1 if most is None else max(most - live, 1)

    def _bounded(self, items: int, seconds: float) -> float:
        """Return what a step may count: a pause, or a cold first step, is no slowdown."""
        if not self._weight:
            return seconds
        if self._weight == 1.0:
            first_s = SURPRISE * seconds * max(self._items / items, 1.0)
            self._seconds = min(self._seconds, first_s)
            self._items_seconds = self._items * self._seconds
        base_s, each_s = self._line()
        expected_s = base_s + each_s * max(items, self._items / self._weight)
        return min(seconds, SURPRISE * expected_s)

    def _line(self) -> tuple[float, float]:
        """Return what a step takes for itself and for each item, in seconds; neither below 0.

        Where all steps were of one size nothing is known of the first part: it counts as 0,
        which is on the safe side.
        """
        items, seconds = self._items / self._weight, self._seconds / self._weight
        spread = self._items_sq / self._weight - items * items
        shared = self._items_seconds / self._weight - items * seconds
        alone_s = seconds / items
        each_s = shared / spread if spread > _LEAST_SPREAD else alone_s
        each_s = min(max(each_s, _LEAST_PART * alone_s), alone_s)
        return max(seconds - each_s * items, 0.0), each_s
