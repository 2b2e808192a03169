"""The endpoints that a job may name: routes whose requests are JSON and answers come whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headpond.dialect import Route
from headpond.record import WorkloadRecord


@dataclass(frozen=True, slots=True)
class BatchEndpoint:
    """One route that records can be sent to, and its workload."""

    record: WorkloadRecord
    route: Route


def batch_endpoints(records: Iterable[WorkloadRecord]) -> Mapping[str, BatchEndpoint]:
    """Return the endpoints that jobs may name, by path."""
    return {
        route.path: BatchEndpoint(record, route)
        for record in records
        for route in record.routes
        if route.method == "POST" and route.request is not None and "{" not in route.path
    }
