"""A histogram that costs a quarter of a microsecond to feed, and renders when scraped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from prometheus_client.core import HistogramMetricFamily

LATENCY_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)


class Histogram:
    """Counts of seconds by upper bound. One thread feeds it; any may read it."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Mapping[str, str]) -> None:
        """Add what was counted to a family, under these labels.

        Args:
            family: Declared with the names of `labels`, in their order.
            labels: Label values by name.
        """
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append((_bound(bound), total))
        family.add_metric(list(labels.values()), buckets, self._sum)


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
