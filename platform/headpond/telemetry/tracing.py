"""Spans of finished calls, when a collector is configured; without one, nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from headpond.record import WorkloadRecord
from headpond.settings import Settings
from headpond.telemetry.report import CallReport


class CallTracer(Protocol):
    """Makes the spans of each call that is over; an observer of the loop."""

    def observe(self, report: CallReport) -> None:
        """Hand the spans of one call to the exporter, which sends them later."""
        ...

    def stop(self) -> None:
        """Send what waits and stop."""
        ...


def call_tracer(settings: Settings, record: WorkloadRecord, bundle: str) -> CallTracer | None:
    """Return a tracer for the configured collector, or None when there is none.

    Args:
        settings: Names the collector.
        record: The workload whose calls are traced.
        bundle: `name@version+digest12`, in every span.
    """
    if settings.otlp_endpoint is None:
        return None
    # The OpenTelemetry SDK takes a third of a second to import.
    connect: Callable[[str, WorkloadRecord, str], CallTracer]
    connect = import_module("headpond.telemetry.spans").connect
    return connect(settings.otlp_endpoint, record, bundle)
