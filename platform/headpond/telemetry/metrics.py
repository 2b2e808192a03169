"""A replica's metrics: the record's phases, units and bounds, counted from call reports.

Every measure is kept once, whatever names it is shown under: the record's aliases read the
same numbers when they are scraped. Labels come from the record and the bundle, never from
a caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headpond.errors import HeadpondError
from headpond.record import Bounds, MetricAlias, PhaseKind, ThroughputUnit, WorkloadRecord
from headpond.telemetry.histogram import Histogram
from headpond.telemetry.outcomes import OK
from headpond.telemetry.report import CallReport

_FINISHED = "Calls that are over and were not refused: ok, failed, or request_cancelled."


class LoopState(Protocol):
    """What is shown of a loop's snapshot."""

    @property
    def received(self) -> int:
        """Calls that came."""
        ...

    @property
    def running_slots(self) -> int:
        """Items that hold state."""
        ...

    @property
    def queued_items(self) -> int:
        """Items in the queue."""
        ...

    @property
    def state_held_bytes(self) -> int:
        """Bytes held by what runs."""
        ...

    @property
    def state_budget_bytes(self) -> int:
        """Bytes that may be held."""
        ...


class Metrics(Collector):
    """One bundle's metrics. One thread calls `observe`; scraping is safe beside it."""

    def __init__(self, record: WorkloadRecord, *, bundle: str, model: str) -> None:
        """Start at zero.

        Args:
            record: Names the phases, units, bounds and aliases.
            bundle: The label `bundle`, `name@version+digest12`.
            model: The label `model`, and `model_name` on aliases.
        """
        self._record = record
        self._labels = {"workload": record.name, "model": model, "bundle": bundle}
        self._phases = {phase.name: Histogram() for phase in record.phases}
        self._first_output, self._gap, self._total = Histogram(), Histogram(), Histogram()
        self._finished: dict[str, int] = {OK: 0}
        self._refused: dict[str, int] = {}
        self._work = dict.fromkeys((unit.name for unit in record.units), 0)
        self._goodput = dict.fromkeys(range(len(record.throughput)), 0)
        self._preemptions = 0
        self._state: Callable[[], LoopState] | None = None
        self._tallies: Callable[[], Mapping[str, int]] = dict
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def watch(
        self,
        state: Callable[[], LoopState],
        tallies: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Read a loop's and an engine's own numbers whenever metrics are scraped.

        Args:
            state: Returns the loop's snapshot.
            tallies: Returns what the engine counts; safe to call from any thread.
        """
        self._state = state
        self._tallies = tallies

    def refuse(self, error: HeadpondError) -> None:
        """Count one call that was refused before its body was read."""
        _count(self._refused, error.code or error.kind)

    def observe(self, report: CallReport) -> None:
        """Count one call that is over."""
        _count(self._refused if report.refused else self._finished, report.outcome)
        if report.refused:
            return
        self._preemptions += report.preemptions
        for phase, spent_s in report.phases_s.items():
            self._phases[phase].observe(spent_s)
        if report.first_output_s is not None:
            self._first_output.observe(report.first_output_s)
        if report.gap_s is not None:
            self._gap.observe(report.gap_s)
        self._total.observe(report.total_s)
        for unit, amount in report.work.items():
            self._work[unit] += amount
        if report.outcome == OK:
            for index, rate in enumerate(self._record.throughput):
                if kept(rate.bounds, report):
                    self._goodput[index] += report.work[rate.unit]

    def text(self) -> str:
        """Return everything in the Prometheus text format."""
        return generate_latest(self._registry).decode()

    def collect(self) -> Iterator[Metric]:
        """Yield every family, the aliases last."""
        yield self._histograms(
            "headpond_phase_seconds", "Seconds spent in each phase.", self._phases, "phase"
        )
        for name, text, histogram in (
            ("headpond_first_output_seconds", "Seconds to the first output.", self._first_output),
            ("headpond_gap_seconds", "Mean seconds between a call's outputs.", self._gap),
            ("headpond_request_seconds", "Seconds from submission to the end.", self._total),
        ):
            yield self._histograms(name, text, {"": histogram})
        yield self._counters("headpond_work", "Work done.", self._work, "unit")
        yield self._goodput_family()
        yield self._counters("headpond_finished", _FINISHED, self._finished, "outcome")
        yield self._counters("headpond_refused", "Calls refused before any work.", self._refused,
                             "code")  # fmt: skip
        yield self._counters("headpond_preemptions", "Preemptions.", {"": self._preemptions})
        counted = self._tallies()
        for tally in self._record.tallies:
            by_value = {"": counted.get(tally.name, 0)}
            yield self._counters(f"headpond_{tally.name}", tally.summary, by_value)
        yield from self._gauges()
        for alias in self._record.metric_aliases:
            yield from self._alias(alias)

    def _histograms(
        self, name: str, text: str, by_value: Mapping[str, Histogram], label: str = ""
    ) -> Metric:
        extra = {label: ""} if label else {}
        family = HistogramMetricFamily(name, text, labels=(*self._labels, *extra))
        for value, histogram in by_value.items():
            histogram.add_to(family, {**self._labels, **({label: value} if label else {})})
        return family

    def _counters(
        self, name: str, text: str, by_value: Mapping[str, int], label: str = ""
    ) -> Metric:
        extra = (label,) if label else ()
        family = CounterMetricFamily(name, text, labels=(*self._labels, *extra))
        for value, count in sorted(by_value.items()):
            family.add_metric([*self._labels.values(), *([value] if label else ())], count)
        return family

    def _goodput_family(self) -> Metric:
        family = CounterMetricFamily(
            "headpond_goodput",
            "Work of calls that kept the latency bounds.",
            labels=(*self._labels, "unit", "within"),
        )
        for rate, amount in zip(self._record.throughput, self._goodput.values(), strict=True):
            family.add_metric([*self._labels.values(), rate.unit, _within(rate)], amount)
        return family

    def _gauges(self) -> Iterator[Metric]:
        if self._state is None:
            return
        state = self._state()
        received = {"": state.received}
        yield self._counters("headpond_received", "Calls that came.", received)
        over = sum(self._finished.values()) + sum(self._refused.values())
        for name, text, value in (
            ("headpond_open", "Calls that are not over.", state.received - over),
            ("headpond_running", "Items that hold state.", state.running_slots),
            ("headpond_waiting", "Items in the queue.", state.queued_items),
            ("headpond_state_held_bytes", "Bytes of retained state.", state.state_held_bytes),
            ("headpond_state_budget_bytes", "Bytes that may be held.", state.state_budget_bytes),
        ):
            family = GaugeMetricFamily(name, text, labels=tuple(self._labels))
            family.add_metric(list(self._labels.values()), value)
            yield family

    def _alias(self, alias: MetricAlias) -> Iterator[Metric]:
        labels = {name: text.format_map(self._labels) for name, text in alias.labels.items()}
        text = f"The same as our {alias.measure}."
        if (histogram := self._histogram(alias.measure)) is not None:
            family = HistogramMetricFamily(alias.name, text, labels=tuple(labels))
            histogram.add_to(family, labels)
            yield family
        elif (count := self._count(alias.measure)) is not None:
            counter = CounterMetricFamily(alias.name, text, labels=tuple(labels))
            counter.add_metric(list(labels.values()), count)
            yield counter
        elif self._state is not None:
            gauge = GaugeMetricFamily(alias.name, text, labels=tuple(labels))
            gauge.add_metric(list(labels.values()), _gauge(alias.measure, self._state()))
            yield gauge

    def _histogram(self, measure: str) -> Histogram | None:
        queue = next(p.name for p in self._record.phases if p.kind is PhaseKind.QUEUE)
        kind, _, name = measure.partition(":")
        if kind == "phase_s":
            return self._phases[name]
        return {
            "first_output_s": self._first_output,
            "gap_s": self._gap,
            "total_s": self._total,
            "queue_s": self._phases[queue],
        }.get(measure)

    def _count(self, measure: str) -> int | None:
        kind, _, name = measure.partition(":")
        if kind == "work":
            return self._work[name]
        if kind == "tally":
            return self._tallies().get(name, 0)
        return {
            "finished": sum(self._finished.values()),
            "refused": sum(self._refused.values()),
            "preemptions": self._preemptions,
        }.get(measure)


def _count(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1


def kept(bounds: Bounds, report: CallReport) -> bool:
    """Return whether a call kept latency bounds; a call without output kept none for it."""
    first = report.first_output_s if report.first_output_s is not None else float("inf")
    gap = report.gap_s if report.gap_s is not None else 0.0
    return (
        (bounds.first_output_s is None or first <= bounds.first_output_s)
        and (bounds.gap_s is None or gap <= bounds.gap_s)
        and (bounds.total_s is None or report.total_s <= bounds.total_s)
    )


def _within(rate: ThroughputUnit) -> str:
    bounds = {
        "first_output_s": rate.bounds.first_output_s,
        "gap_s": rate.bounds.gap_s,
        "total_s": rate.bounds.total_s,
    }
    return ",".join(f"{name}<={bound:g}" for name, bound in bounds.items() if bound is not None)


def _gauge(measure: str, state: LoopState) -> float:
    if measure == "running":
        return state.running_slots
    if measure == "waiting":
        return state.queued_items
    return state.state_held_bytes / state.state_budget_bytes if state.state_budget_bytes else 0.0
