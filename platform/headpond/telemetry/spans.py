"""Call reports as OpenTelemetry spans: one for the call, one below it for each phase.

Attribute names follow OpenTelemetry's semantic conventions for generative AI where the
record has the same thing: a work unit in tokens is a `gen_ai.usage.*`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from headpond.record import WorkloadRecord
from headpond.telemetry.report import CallReport

_NS = 1_000_000_000


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
            record: Names the phases' kinds.
            bundle: `name@version+digest12`.
            now_ns: Unix time; a call is over when it is observed.
        """
        resource = Resource.create({"service.name": "headpond", "headpond.bundle": bundle})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("headpond")
        self._bundle = bundle
        self._kinds = {phase.name: phase.kind.value for phase in record.phases}
        self._now_ns = now_ns

    def observe(self, report: CallReport) -> None:
        """Make the spans of one call, below its caller's when it said so."""
        call = report.call
        carrier = {"traceparent": call.trace} if call.trace is not None else {}
        end_ns = self._now_ns()
        start_ns = end_ns - round(report.total_s * _NS)
        span = self._tracer.start_span(
            f"{call.workload} {call.model}",
            context=TraceContextTextMapPropagator().extract(carrier),
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
        if report.outcome != "ok":
            span.set_status(Status(StatusCode.ERROR, report.outcome))
        span.end(end_ns)

    def stop(self) -> None:
        """Send what waits and stop."""
        self._provider.shutdown()

    def _attributes(self, report: CallReport) -> dict[str, AttributeValue]:
        call = report.call
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": call.workload,
            "gen_ai.provider.name": "headpond",
            "gen_ai.request.model": call.model,
            "gen_ai.response.model": self._bundle,
            "headpond.request_id": call.request_id,
            "headpond.tenant": call.tenant,
            "headpond.items": len(call.items),
            "headpond.preemptions": report.preemptions,
        }
        for unit, amount in report.work.items():
            prefix = "gen_ai.usage" if unit.endswith("_tokens") else "headpond.work"
            attributes[f"{prefix}.{unit}"] = amount
        if report.first_output_s is not None:
            attributes["headpond.first_output_s"] = report.first_output_s
        if report.outcome != "ok":
            attributes["error.type"] = report.outcome
        return attributes


def connect(endpoint: str, record: WorkloadRecord, bundle: str) -> Spans:
    """Return spans that go to a collector by OTLP over HTTP, in batches, from a thread.

    Args:
        endpoint: The collector's base URL, e.g. `http://localhost:4318`.
        record: The workload whose calls are traced.
        bundle: `name@version+digest12`.
    """
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    return Spans(BatchSpanProcessor(exporter), record, bundle)
