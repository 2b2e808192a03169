"""What a router tells of rollouts in its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headpond.rollouts.trial import Trial


class RolloutMetrics(Collector):
    """Rollbacks since the start, and the trials of now. Labels come from the alias table."""

    def __init__(self) -> None:
        """Start at zero."""
        self._trials: Sequence[Trial] = ()
        self._rollbacks: Counter[str] = Counter()

    def watch(self, trials: Sequence[Trial]) -> None:
        """Show these trials from now on."""
        self._trials = trials

    def count_rollback(self, alias: str) -> None:
        """Count a canary that this router has taken back."""
        self._rollbacks[alias] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        rollbacks = CounterMetricFamily(
            "headpond_canary_rollbacks", "Canaries taken back by their guard.", labels=("alias",)
        )
        for alias, count in sorted(self._rollbacks.items()):
            rollbacks.add_metric([alias], count)
        yield rollbacks
        calls = GaugeMetricFamily(
            "headpond_trial_requests",
            "Calls of the guard's window that ended, by who served them.",
            labels=("alias", "side", "outcome"),
        )
        copies = GaugeMetricFamily(
            "headpond_shadow_requests",
            "Copies of calls in this trial, by what came of them.",
            labels=("alias", "outcome"),
        )
        for trial in self._trials:
            seen = trial.report()
            for side, tally in (("canary", seen.canary), ("others", seen.others)):
                calls.add_metric([seen.alias, side, "failed"], tally.failed)
                calls.add_metric([seen.alias, side, "ok"], tally.ended - tally.failed)
            if trial.revision.shadow is None:
                continue
            agreed = seen.agreed
            for outcome, count in (
                ("agreed", agreed.agreed),
                ("differed", agreed.compared - agreed.agreed),
                ("failed", agreed.failed),
                ("dropped", agreed.dropped),
            ):
                copies.add_metric([seen.alias, outcome], count)
        yield calls
        yield copies
