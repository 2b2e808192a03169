"""The drain rate: how fast admitted work gets done, and so how long waiting takes."""

from __future__ import annotations

from math import ceil, exp

RETRY_AFTER_LEAST_S = 1
RETRY_AFTER_MOST_S = 60

SURPRISE = 4.0
"""So many times as long as the longest before it a sample may be, at most."""


class DrainRate:
    """Weighed work that ends per second of busy time, lately, while there is enough to do.

    An item counts with the weight it was admitted with, whatever it came to: as it goes on,
    and the rest when it ends. The queue is measured in the same currency, so dividing one
    by the other gives a true time even when most requests end long before their maximum.
    Idle time does not count.

    The rate is a ratio of exponentially decayed sums, done work over seconds, divided by
    the part of its admitted weight that work comes to. No one sample may mislead it:

    - One that was taken while there was less to do than could be done says nothing of how
      much could be: a tiny request alone takes as long as a step with many. Only the part
      that work comes to is learnt from it.
    - One that is much longer than any before it, as after a pause of the machine, counts
      `SURPRISE` times the longest, which is forgotten like the rest. So a pause leaves
      little behind, and of a lasting change each sample lets the next one say more.
    - The first one is mostly cold, and says only how long samples may be.
    """

    __slots__ = ("_busy_s", "_came_to", "_done", "_ended", "_longest_s", "_memory_s")

    def __init__(self, memory_s: float = 30.0) -> None:
        """Start with nothing measured.

        Args:
            memory_s: Busy seconds after which a sample counts 1/e.
        """
        self._memory_s = memory_s
        self._longest_s = 0.0
        self._done = self._busy_s = 0.0
        self._came_to = self._ended = 0.0

    def record(self, done: float, busy_s: float, *, spared: float = 0.0, full: bool = True) -> None:
        """Take in a stretch of busy time.

        Args:
            done: Weighed work that was done in it.
            busy_s: How long it was.
            spared: What items that ended in it did not come to.
            full: Whether there was as much to do as could be done.
        """
        if not self._longest_s:
            self._longest_s = busy_s
            return
        busy_s = min(busy_s, SURPRISE * self._longest_s)
        decay = exp(-busy_s / self._memory_s)
        self._longest_s = max(self._longest_s * decay, busy_s)
        self._came_to = self._came_to * decay + done
        self._ended = self._ended * decay + done + spared
        if full:
            self._done = self._done * decay + done
            self._busy_s = self._busy_s * decay + busy_s

    @property
    def part(self) -> float:
        """The part of its admitted weight that work comes to; all while nothing is known."""
        return self._came_to / self._ended if self._came_to > 0.0 else 1.0

    @property
    def per_s(self) -> float | None:
        """Weighed work per second, as admitted; None while nothing was measured."""
        if self._busy_s <= 0.0 or self._done <= 0.0:
            return None
        return self._done / self._busy_s / self.part

    def wait_s(self, weight: float) -> float | None:
        """Return the seconds that `weight` takes to drain; None while nothing was measured."""
        rate = self.per_s
        return None if rate is None else weight / rate

    def retry_after_s(self, weight: float) -> float:
        """Return whole seconds, 1 to 60, after which `weight` will have drained."""
        return retry_after_s(self.wait_s(weight) or 0.0)


def retry_after_s(wait_s: float) -> float:
    """Return a wait as callers are told of it: whole seconds, 1 to 60."""
    return float(min(max(ceil(min(wait_s, 1e9)), RETRY_AFTER_LEAST_S), RETRY_AFTER_MOST_S))
