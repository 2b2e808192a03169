"""The meter of one item: how much of its weighed work is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False, kw_only=True)
class Meter:
    """Counts the work of an item as it passes units, each at its phase's price.

    Over an item that finishes it counts exactly what the item was admitted with, corrected
    by what turned out to be cached: so the sum over many items is measured in the currency
    of the queue, and comes evenly.

    Attributes:
        weight: The most the item can cost, weighed.
        first_units: Units of its first phase.
        first_weight: The part of `weight` that is for the first phase.
        extent: Units it holds at most.
        cached: Units of the first phase that were expected to take no work.
        skipped: Units that took none.
        counted: Weighed work counted so far.
    """

    weight: float = 0.0
    first_units: int = 0
    first_weight: float = 0.0
    extent: int = 0
    cached: int = 0
    skipped: int = 0
    counted: float = 0.0

    def advance(self, start: int, end: int, skipped: int) -> float:
        """Count the units from `start` to `end`, reached for the first time.

        Args:
            start: Units passed before.
            end: Units passed now, above `start`.
            skipped: How many of them took no work.

        Returns:
            Their weighed work.
        """
        first = max(min(end, self.first_units) - start, 0)
        skipped = min(skipped, first)
        self.skipped += skipped
        work = (first - skipped) * self._first_price + (end - start - first) * self._later_price
        self.counted += work
        return work

    def finish(self) -> float:
        """Return what is left to be counted when the item is complete; it may end early."""
        weight = self.weight + (self.cached - self.skipped) * self._first_price
        return max(weight - self.counted, 0.0)

    @property
    def _first_price(self) -> float:
        return self.first_weight / max(self.first_units - self.cached, 1)

    @property
    def _later_price(self) -> float:
        later = max(self.extent - self.first_units, 1)
        return max(self.weight - self.first_weight, 0.0) / later
