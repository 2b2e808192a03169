"""Calls and requests that are over as OpenTelemetry spans.

A request to the HTTP layer is a span, each call that it became on a replica is one below it,
and each phase one below that. Attribute names follow OpenTelemetry's semantic conventions, for
HTTP and for generative AI, where these have the same thing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from secrets import token_hex

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from headpond.record import WorkloadRecord
from headpond.telemetry.outcomes import OK
from headpond.telemetry.report import CallReport, RequestReport

_NS = 1_000_000_000
_SAMPLED = "01"
_SEND_EVERY_MS = 1000
"""So much is lost at most of a process that ends."""


class Spans:
    """Makes spans after the fact, from what a call report knows."""

    def __init__(
        self,
        processor: SpanProcessor,
        record: WorkloadRecord,
        bundle: str,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Start with an own provider; OpenTelemetry's global one is left alone.

        Args:
            processor: Where finished spans go.
            record: Names the phases' kinds, and what others call the work.
            bundle: `name@version+digest12`.
            now_ns: Unix time; a call is over when it is observed.
        """
        resource = Resource.create({"service.name": "headpond", "headpond.bundle": bundle})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("headpond")
        self._bundle = bundle
        self._operation = record.gen_ai.operation or record.name
        self._usage = record.gen_ai.usage
        self._kinds = {phase.name: phase.kind.value for phase in record.phases}
        self._now_ns = now_ns

    def observe(self, report: CallReport) -> None:
        """Make the spans of one call, below its caller's when it said so."""
        call = report.call
        end_ns = self._now_ns()
        start_ns = end_ns - round(report.total_s * _NS)
        span = self._tracer.start_span(
            f"{self._operation} {call.model}",
            context=_context(call.trace),
            kind=SpanKind.SERVER,
            attributes=self._attributes(report),
            start_time=start_ns,
        )
        below = set_span_in_context(span)
        for phase, spent_s in report.phases_s.items():
            kind = {"headpond.phase.kind": self._kinds[phase]}
            child = self._tracer.start_span(phase, below, attributes=kind, start_time=start_ns)
            start_ns += round(spent_s * _NS)
            child.end(start_ns)
        _end(span, report.outcome, end_ns)

    def stop(self) -> None:
        """Send what waits and stop."""
        self._provider.shutdown()

    def _attributes(self, report: CallReport) -> dict[str, AttributeValue]:
        call = report.call
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": self._operation,
            "gen_ai.provider.name": "headpond",
            "gen_ai.request.model": call.model,
            "gen_ai.response.model": self._bundle,
            "headpond.workload": call.workload,
            "headpond.request_id": call.request_id,
            "headpond.tenant": call.tenant,
            "headpond.items": len(call.items),
            "headpond.preemptions": report.preemptions,
        }
        for unit, amount in report.work.items():
            attributes[self._usage.get(unit, f"headpond.work.{unit}")] = amount
        if report.first_output_s is not None:
            attributes["headpond.first_output_s"] = report.first_output_s
        return attributes


class RequestSpans:
    """Makes the spans of requests after the fact, under identifiers given out before."""

    def __init__(self, processor: SpanProcessor, now_ns: Callable[[], int] = time.time_ns) -> None:
        """Start with an own provider.

        Args:
            processor: Where finished spans go.
            now_ns: Unix time; a request is over when it is observed.
        """
        self._identifiers = _GivenIdentifiers()
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "headpond"}),
            id_generator=self._identifiers,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("headpond")
        self._now_ns = now_ns

    def enter(self, parent: str | None) -> str:
        """Return the `traceparent` of a request that begins, for what is below it.

        Args:
            parent: As the caller sent it; None begins a trace.
        """
        version, trace, _, flags = (parent or f"00-{token_hex(16)}--{_SAMPLED}").split("-")
        return f"{version}-{trace}-{token_hex(8)}-{flags}"

    def observe(self, report: RequestReport) -> None:
        """Make the span of one request that `enter` was called for."""
        if report.trace is None:
            return
        attributes: dict[str, AttributeValue] = {
            "http.request.method": report.method,
            "http.route": report.route,
            "http.response.status_code": report.status,
            "headpond.workload": report.workload,
            "headpond.request_id": report.request_id,
        }
        if report.tenant is not None:
            attributes["headpond.tenant"] = report.tenant
        self._identifiers.give(report.trace)
        end_ns = self._now_ns()
        span = self._tracer.start_span(
            f"{report.method} {report.route}",
            context=_context(report.parent),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=end_ns - round(report.total_s * _NS),
        )
        _end(span, report.outcome, end_ns)

    def stop(self) -> None:
        """Send what waits and stop."""
        self._provider.shutdown()


class _GivenIdentifiers(RandomIdGenerator):
    """Gives the next span the identifiers that were given out for it."""

    def __init__(self) -> None:
        self._trace_id = self._span_id = 0

    def give(self, trace: str) -> None:
        _, trace_id, span_id, _ = trace.split("-")
        self._trace_id, self._span_id = int(trace_id, 16), int(span_id, 16)

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        return self._span_id


def connect(endpoint: str, record: WorkloadRecord, bundle: str) -> Spans:
    """Return spans of calls that go to a collector by OTLP over HTTP, in batches, from a thread.

    Args:
        endpoint: The collector's base URL, e.g. `http://localhost:4318`.
        record: The workload whose calls are traced.
        bundle: `name@version+digest12`.
    """
    return Spans(_batches(endpoint), record, bundle)


def connect_requests(endpoint: str) -> RequestSpans:
    """Return spans of requests that go to a collector in the same way."""
    return RequestSpans(_batches(endpoint))


def _batches(endpoint: str) -> BatchSpanProcessor:
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    return BatchSpanProcessor(exporter, schedule_delay_millis=_SEND_EVERY_MS)


def _context(trace: str | None) -> Context:
    return TraceContextTextMapPropagator().extract({"traceparent": trace} if trace else {})


def _end(span: Span, outcome: str, end_ns: int) -> None:
    if outcome != OK:
        span.set_attribute("error.type", outcome)
        span.set_status(Status(StatusCode.ERROR, outcome))
    span.end(end_ns)
