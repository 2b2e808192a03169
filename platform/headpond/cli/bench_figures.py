"""What a load came to: rates, latencies and phases, and how much of it counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headpond.cli.bench_load import Seen
from headpond.client.catalogue import LatencyBounds

_REFUSALS = frozenset({429, 503})
_OK = 200


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The middle of some figures, and what nineteen of twenty stay below."""

    p50: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of values; 0 where there are none."""
        ranked = sorted(values) or [0.0]
        p50, p95 = (
            ranked[min(len(ranked) - 1, math.ceil(q * len(ranked)) - 1)] for q in (0.5, 0.95)
        )
        return cls(p50=round(p50, 3), p95=round(p95, 3))


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one rate came to.

    Attributes:
        offered_s: Calls a second that were sent.
        answered_s: Of these, answered whole.
        good_s: Of these, within the bounds: the goodput.
        good_work_s: What those came to, in the workload's unit, a second.
        refused: Calls that were told to come again (429, 503).
        failed: Calls that failed otherwise.
        first_ms: From sending to the first output, of those answered.
        total_ms: From sending to the end, of those answered.
        phases_ms: The same, as the server divides it.
        errors: What went wrong, and how often, the most frequent first.
    """

    offered_s: float
    answered_s: float
    good_s: float
    good_work_s: float
    refused: int
    failed: int
    first_ms: Spread
    total_ms: Spread
    phases_ms: dict[str, Spread]
    errors: dict[str, int]


def figures(seen: Sequence[Seen], seconds: float, bounds: LatencyBounds, unit: str) -> Figures:
    """Return what calls that came within `seconds` came to.

    Args:
        seen: The calls.
        seconds: How long they came.
        bounds: Within which work counts.
        unit: The unit of work that is counted.
    """
    answered = [each for each in seen if each.status == _OK and each.error is None]
    good = [each for each in answered if _is_good(each, bounds)]
    refused = sum(each.status in _REFUSALS for each in seen)
    names = list(dict.fromkeys(name for each in answered for name in each.phases_ms))
    wrong = Counter(each.error for each in seen if each.error is not None)
    return Figures(
        offered_s=round(len(seen) / seconds, 3),
        answered_s=round(len(answered) / seconds, 3),
        good_s=round(len(good) / seconds, 3),
        good_work_s=round(sum(each.work.get(unit, 0) for each in good) / seconds, 1),
        refused=refused,
        failed=len(seen) - len(answered) - refused,
        first_ms=Spread.of([each.first_s * 1000 for each in answered]),
        total_ms=Spread.of([each.total_s * 1000 for each in answered]),
        phases_ms={
            name: Spread.of([each.phases_ms.get(name, 0.0) for each in answered]) for name in names
        },
        errors=dict(wrong.most_common()),
    )


def _is_good(seen: Seen, bounds: LatencyBounds) -> bool:
    pairs = (
        (seen.first_s, bounds.first_output_s),
        (seen.gap_s, bounds.gap_s),
        (seen.total_s, bounds.total_s),
    )
    return all(bound is None or spent_s <= bound for spent_s, bound in pairs)
