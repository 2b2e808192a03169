"""A replica's metrics, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headpond.call import Call
from headpond.errors import Overloaded
from headpond.record import MetricAlias, WorkloadRecord
from headpond.telemetry.metrics import Metrics
from headpond.telemetry.report import CallReport
from headpond.units import Work

OURS = {"workload": "toy", "model": "small", "bundle": "toy-small@1+0123456789ab"}


@dataclass
class Loop:
    received: int = 0
    running_slots: int = 3
    queued_items: int = 5
    state_held_bytes: int = 25
    state_budget_bytes: int = 100


def report(
    *,
    outcome: str = "ok",
    refused: bool = False,
    first_output_s: float | None = 0.5,
    gap_s: float | None = 0.05,
    work: int = 4,
    preemptions: int = 0,
) -> CallReport:
    call = Call(
        request_id="r",
        tenant="acme",
        workload="toy",
        model="small",
        items=("my secret prompt",),
        deadline_s=1.0,
    )
    phases = {"validate": 0.01, "queue": 0.2, "play": 0.3, "delivery": 0.0}
    return CallReport(
        call=call,
        outcome=outcome,
        work=Work(toys=work),
        phases_s={} if refused else phases,
        first_output_s=first_output_s,
        gap_s=gap_s,
        total_s=0.7,
        preemptions=preemptions,
    )


@pytest.fixture
def metrics(record: WorkloadRecord) -> Metrics:
    return Metrics(record, bundle=OURS["bundle"], model=OURS["model"])


def value(metrics: Metrics, name: str, labels: Mapping[str, str]) -> float:
    found = [
        sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
        if sample.name == name and sample.labels == dict(labels)
    ]
    assert len(found) == 1, f"{name} {labels}"
    return found[0]


def test_every_phase_has_a_histogram(metrics: Metrics, record: WorkloadRecord) -> None:
    metrics.observe(report())
    metrics.observe(report())
    for phase in record.phases:
        labels = {**OURS, "phase": phase.name}
        assert value(metrics, "headpond_phase_seconds_count", labels) == 2
    queue = {**OURS, "phase": "queue"}
    assert value(metrics, "headpond_phase_seconds_sum", queue) == pytest.approx(0.4)
    assert value(metrics, "headpond_phase_seconds_bucket", {**queue, "le": "0.1"}) == 0
    assert value(metrics, "headpond_phase_seconds_bucket", {**queue, "le": "0.25"}) == 2
    assert value(metrics, "headpond_phase_seconds_bucket", {**queue, "le": "+Inf"}) == 2


def test_latencies_that_a_call_does_not_have_are_not_counted(metrics: Metrics) -> None:
    metrics.observe(report(first_output_s=None, gap_s=None))
    metrics.observe(report())
    assert value(metrics, "headpond_first_output_seconds_count", OURS) == 1
    assert value(metrics, "headpond_gap_seconds_count", OURS) == 1
    assert value(metrics, "headpond_request_seconds_count", OURS) == 2
    assert value(metrics, "headpond_request_seconds_sum", OURS) == pytest.approx(1.4)


def test_outcomes_and_refusals_are_apart(metrics: Metrics) -> None:
    for outcome, refused in (("ok", False), ("ok", False), ("engine_failed", False)):
        metrics.observe(report(outcome=outcome, refused=refused))
    metrics.refuse(Overloaded("before it was read"))
    metrics.observe(report(outcome="overloaded", refused=True, work=0))
    assert value(metrics, "headpond_finished_total", {**OURS, "outcome": "ok"}) == 2
    assert value(metrics, "headpond_finished_total", {**OURS, "outcome": "engine_failed"}) == 1
    assert value(metrics, "headpond_refused_total", {**OURS, "code": "overloaded"}) == 2
    assert value(metrics, "headpond_request_seconds_count", OURS) == 3


def test_work_is_counted_always_and_goodput_within_the_bounds(metrics: Metrics) -> None:
    metrics.observe(report(work=1))
    metrics.observe(report(work=10, first_output_s=1.5))
    metrics.observe(report(work=100, gap_s=0.2))
    metrics.observe(report(work=1000, outcome="deadline_exceeded"))
    metrics.observe(report(work=10_000, first_output_s=None))
    metrics.observe(report(work=100_000, gap_s=None))
    assert value(metrics, "headpond_work_total", {**OURS, "unit": "toys"}) == 111_111
    within = {**OURS, "unit": "toys", "within": "first_output_s<=1,gap_s<=0.1"}
    assert value(metrics, "headpond_goodput_total", within) == 100_001


def test_gauges_are_the_loops_at_the_time_of_the_scrape(metrics: Metrics) -> None:
    loop = Loop()
    metrics.watch(lambda: loop)
    assert value(metrics, "headpond_running", OURS) == 3
    assert value(metrics, "headpond_waiting", OURS) == 5
    assert value(metrics, "headpond_state_held_bytes", OURS) == 25
    assert value(metrics, "headpond_state_budget_bytes", OURS) == 100
    loop.running_slots = 4
    assert value(metrics, "headpond_running", OURS) == 4


def test_preemptions_add_up(metrics: Metrics) -> None:
    metrics.observe(report(preemptions=2))
    metrics.observe(report(preemptions=1))
    assert value(metrics, "headpond_preemptions_total", OURS) == 3


def test_aliases_are_the_same_numbers_with_the_right_type(metrics: Metrics) -> None:
    metrics.watch(Loop)
    metrics.observe(report())
    families = {
        family.name: family.type for family in text_string_to_metric_families(metrics.text())
    }
    alias = {"model_name": "small"}
    types = {
        "vllm:num_requests_running": "gauge",
        "vllm:kv_cache_usage_perc": "gauge",
        "vllm:time_to_first_token_seconds": "histogram",
        "vllm:request_queue_time_seconds": "histogram",
        "toy_play_seconds": "histogram",
        "vllm:request_success": "counter",
        "toys_done": "counter",
    }
    assert {name: families[name] for name in types} == types
    assert value(metrics, "vllm:num_requests_running", alias) == 3
    assert value(metrics, "vllm:kv_cache_usage_perc", alias) == 0.25
    assert value(metrics, "vllm:time_to_first_token_seconds_sum", alias) == 0.5
    assert value(metrics, "vllm:request_queue_time_seconds_sum", alias) == 0.2
    assert value(metrics, "toy_play_seconds_sum", alias) == 0.3
    assert value(metrics, "vllm:request_success_total", alias) == 1
    assert value(metrics, "toys_done_total", alias) == 4


def test_tallies_are_the_engines_own_under_both_names(metrics: Metrics) -> None:
    counted = {"springs": 3, "secrets": 1}
    metrics.watch(Loop, lambda: counted)
    assert value(metrics, "headpond_springs_total", OURS) == 3
    counted["springs"] = 5
    assert value(metrics, "headpond_springs_total", OURS) == 5
    assert value(metrics, "toy_springs_total", {"model_name": "small"}) == 5
    assert "secrets" not in metrics.text()


def test_nothing_of_the_caller_becomes_a_label(metrics: Metrics) -> None:
    metrics.observe(report())
    text = metrics.text()
    assert "acme" not in text
    assert "secret" not in text


def test_an_idle_replica_shows_its_phases_and_units_at_zero(metrics: Metrics) -> None:
    assert value(metrics, "headpond_work_total", {**OURS, "unit": "toys"}) == 0
    assert value(metrics, "headpond_phase_seconds_count", {**OURS, "phase": "play"}) == 0


def test_what_came_is_over_or_open(metrics: Metrics) -> None:
    loop = Loop(received=4)
    metrics.watch(lambda: loop)
    metrics.observe(report())
    metrics.observe(report(outcome="overloaded", refused=True))
    assert value(metrics, "headpond_received_total", OURS) == 4
    assert value(metrics, "headpond_open", OURS) == 2


def test_the_labels_of_an_alias_are_the_records(record: WorkloadRecord) -> None:
    alias = MetricAlias(
        name="gen_ai_requests", measure="finished", labels={"gen_ai_request_model": "{model}"}
    )
    named = replace(record, metric_aliases=(alias,))
    metrics = Metrics(named, bundle=OURS["bundle"], model=OURS["model"])
    metrics.observe(report())
    assert value(metrics, "gen_ai_requests_total", {"gen_ai_request_model": "small"}) == 1


def test_a_replica_shows_its_own_process(metrics: Metrics) -> None:
    assert value(metrics, "process_resident_memory_bytes", {}) > 2**20
