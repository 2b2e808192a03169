"""Spans of calls and requests, when a collector is configured; without one, nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from headpond.record import WorkloadRecord
from headpond.settings import Settings
from headpond.telemetry.report import CallReport, RequestReport

_SPANS = "headpond.telemetry.spans"
"""Imported when it is needed: the OpenTelemetry SDK takes a third of a second."""


class CallTracer(Protocol):
    """Makes the spans of each call that is over; an observer of the loop."""

    def observe(self, report: CallReport) -> None:
        """Hand the spans of one call to the exporter, which sends them later."""
        ...

    def stop(self) -> None:
        """Send what waits and stop."""
        ...


class RequestTracer(Protocol):
    """Makes the span of each request to the HTTP layer that is over."""

    def enter(self, parent: str | None) -> str:
        """Return the `traceparent` of a request that begins, for the calls below it.

        Args:
            parent: As the caller sent it; None begins a trace.
        """
        ...

    def observe(self, report: RequestReport) -> None:
        """Hand the span of one request to the exporter, which sends it later."""
        ...

    def stop(self) -> None:
        """Send what waits and stop."""
        ...


def call_tracer(settings: Settings, record: WorkloadRecord, bundle: str) -> CallTracer | None:
    """Return a tracer of calls for the configured collector, or None when there is none.

    Args:
        settings: Names the collector.
        record: The workload whose calls are traced.
        bundle: `name@version+digest12`, in every span.
    """
    if settings.otlp_endpoint is None:
        return None
    connect: Callable[[str, WorkloadRecord, str], CallTracer]
    connect = import_module(_SPANS).connect
    return connect(settings.otlp_endpoint, record, bundle)


def request_tracer(settings: Settings) -> RequestTracer | None:
    """Return a tracer of requests for the configured collector, or None when there is none."""
    if settings.otlp_endpoint is None:
        return None
    connect: Callable[[str], RequestTracer] = import_module(_SPANS).connect_requests
    return connect(settings.otlp_endpoint)
