"""Merging replicas' metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headpond.telemetry.exposition import merge_expositions


def exposition(count: int) -> str:
    registry = CollectorRegistry()
    Counter("work", "Work done.", ["unit"], registry=registry).labels("tokens").inc(count)
    Gauge("vllm:running", "Running.", registry=registry).set(count)
    Histogram("wait_seconds", "Waits.", buckets=(1.0,), registry=registry).observe(0.5)
    return generate_latest(registry).decode()


def test_samples_of_every_replica_stand_side_by_side() -> None:
    merged = merge_expositions({"a": exposition(3), "b": exposition(4)})
    values = {
        (sample.name, sample.labels["replica"]): sample.value
        for family in text_string_to_metric_families(merged)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    assert values[("work_total", "a")] == 3
    assert values[("work_total", "b")] == 4
    assert values[("vllm:running", "b")] == 4
    assert values[("wait_seconds_count", "a")] == 1
    assert merged.count("# TYPE work_total counter") == 1


def test_nothing_merges_to_nothing() -> None:
    assert merge_expositions({}).strip() == ""
