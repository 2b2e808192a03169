"""From rows of measurements to the cases of a results file.

A case is one figure of one of our variants in one scenario, beside every peer's. `report.py`
turns the cases of a scenario into one table with a line for each server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness import median

Rows = Mapping[int, Mapping[str, float]]
"""One contender's measurements by round; a round that failed is missing."""

Field = dict[str, dict[int, Mapping[str, float]]]
"""Rows by contender."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A figure of a row.

    Attributes:
        key: Its name in the row.
        unit: Its unit, which heads its column.
    """

    key: str
    unit: str


def table_cases(
    scenario: str,
    measures: Sequence[Measure],
    field: Mapping[str, Rows],
    *,
    ours: Sequence[str],
    floors: Mapping[str, Mapping[str, float]] | None = None,
    quality: Mapping[str, str] | None = None,
) -> Iterator[dict[str, object]]:
    """Yield a case for every measure of every variant of ours that was measured.

    Args:
        scenario: Its name.
        measures: The columns; the first is the one that ratios and floors are about.
        field: Rows by contender.
        ours: Which contenders are ours.
        floors: By our variant, what could be reached at best, by what it is reckoned from, in
            the first measure's unit.
        quality: By contender, how its answers compare.
    """
    others = {name: rows for name, rows in field.items() if name not in ours}
    for variant in ours:
        rows = field.get(variant)
        if not rows:
            continue
        for at, measure in enumerate(measures):
            peers = {name: each for name, each in others.items() if measure.key in _first(each)}
            yield {
                "case": f"{scenario}, {variant}, {measure.unit}",
                "scenario": scenario,
                "variant": variant,
                "unit": measure.unit,
                "ours": _median(rows, measure.key),
                "peers": {name: _median(each, measure.key) for name, each in peers.items()},
                **_ratios(rows, peers, measure.key),
                "cpu_per_unit": _median(rows, "cpu_ms") / 1e3 if "cpu_ms" in _first(rows) else None,
                "pss_bytes": _median(rows, "pss_mib") * 2**20
                if "pss_mib" in _first(rows)
                else None,
                "floor": (floors or {}).get(variant) if at == 0 else None,
                "quality": (quality or {}).get(variant),
                "peer_quality": {
                    name: (quality or {})[name] for name in peers if name in (quality or {})
                },
                "rounds_measured": len(rows),
            }


def _ratios(rows: Rows, peers: Mapping[str, Rows], key: str) -> dict[str, object]:
    """Return ours over theirs in the rounds that both finished: medians, least and greatest."""
    ratios = {
        name: [
            rows[number][key] / theirs[number][key]
            for number in sorted(rows.keys() & theirs.keys())
            if theirs[number][key]
        ]
        for name, theirs in peers.items()
    }
    there = {name: values for name, values in ratios.items() if values}
    return {
        "ratio": {name: median(values) for name, values in there.items()},
        "spread": {name: [min(values), max(values)] for name, values in there.items()},
    }


def _first(rows: Rows) -> Mapping[str, float]:
    return next(iter(rows.values()))


def _median(rows: Rows, key: str) -> float:
    return median([row[key] for row in rows.values()])
