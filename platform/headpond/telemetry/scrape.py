"""Scrapes of `/metrics`, and what happened between two of them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """One exposition, by the name of the sample and its labels.

    Attributes:
        at_s: When, on a monotonic clock.
        samples: What was there.
    """

    at_s: float
    samples: Mapping[str, Mapping[Labels, float]] = field(repr=False)

    @classmethod
    def parse(cls, text: str, at_s: float) -> Scrape:
        """Read an exposition in the Prometheus text format."""
        samples: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples[sample.name][frozenset(sample.labels.items())] = sample.value
        return cls(at_s=at_s, samples=samples)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all samples of a name that have these labels."""
        wanted = set(labels.items())
        return sum(value for has, value in self.samples.get(name, {}).items() if wanted <= has)

    def values(self, name: str, label: str, **labels: str) -> list[str]:
        """Return the values of a label, sorted, among samples that have these labels."""
        wanted = set(labels.items())
        found = (dict(has) for has in self.samples.get(name, {}) if wanted <= has)
        return sorted({has[label] for has in found if label in has})


@dataclass(frozen=True, kw_only=True)
class Interval:
    """What happened between two scrapes of one server.

    Attributes:
        before: The earlier one.
        after: The later one.
    """

    before: Scrape
    after: Scrape

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.after.at_s - self.before.at_s

    def rate(self, name: str, **labels: str) -> float:
        """Return the rate per second of a counter; one that began anew counts from zero."""
        wanted = set(labels.items())
        before = self.before.samples.get(name, {})
        grown = sum(
            _grown(before.get(has, 0.0), value)
            for has, value in self.after.samples.get(name, {}).items()
            if wanted <= has
        )
        return grown / self.seconds

    def quantile(self, share: float, histogram: str, **labels: str) -> float | None:
        """Return the value that a share of what a histogram counted stays below.

        Interpolated within a bucket, as Prometheus does; None when nothing was counted.
        """
        wanted = set(labels.items())
        before = self.before.samples.get(f"{histogram}_bucket", {})
        counts: defaultdict[float, float] = defaultdict(float)
        for has, value in self.after.samples.get(f"{histogram}_bucket", {}).items():
            if wanted <= has:
                counts[float(dict(has)["le"])] += _grown(before.get(has, 0.0), value)
        return interpolated(share, sorted(counts.items()))


def _grown(before: float, after: float) -> float:
    return after - before if after >= before else after


def interpolated(share: float, buckets: Iterable[tuple[float, float]]) -> float | None:
    """Return a quantile of cumulative counts by upper bound, in rising order.

    Above the last finite bound it is that bound: more is not known.
    """
    bounds, counts = zip(*buckets, strict=True) if (buckets := list(buckets)) else ((), ())
    if not counts or not counts[-1]:
        return None
    rank = share * counts[-1]
    index = bisect_left(counts, rank)
    if bounds[index] == float("inf"):
        return float(bounds[index - 1]) if index else None
    low, under = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    within = counts[index] - under
    return float(low + (bounds[index] - low) * ((rank - under) / within if within else 1.0))
