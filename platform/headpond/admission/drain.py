"""The drain rate: how fast admitted work gets done, and so how long waiting takes."""

from __future__ import annotations

from math import ceil, exp

RETRY_AFTER_LEAST_S = 1
RETRY_AFTER_MOST_S = 60


class DrainRate:
    """Weighed work that ends per second of busy time, lately.

    An item counts with the weight it was admitted with, whatever it came to: as it goes on,
    and the rest when it ends. The queue is measured in the same currency, so dividing one
    by the other gives a true time even when most requests end long before their maximum.
    Idle time does not count.

    The rate is a ratio of two exponentially decayed sums, sum(weight) / sum(seconds).
    """

    __slots__ = ("_busy_s", "_memory_s", "_weight")

    def __init__(self, memory_s: float = 30.0) -> None:
        """Start with nothing measured.

        Args:
            memory_s: Busy seconds after which a sample counts 1/e.
        """
        self._memory_s = memory_s
        self._weight = 0.0
        self._busy_s = 0.0

    def record(self, weight: float, busy_s: float) -> None:
        """Add what ended in a stretch of busy time."""
        if busy_s > 0.0:
            decay = exp(-busy_s / self._memory_s)
            self._weight *= decay
            self._busy_s = self._busy_s * decay + busy_s
        self._weight += weight

    @property
    def per_s(self) -> float | None:
        """Weighed work per second; None while nothing was measured."""
        if self._busy_s <= 0.0 or self._weight <= 0.0:
            return None
        return self._weight / self._busy_s

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
