"""Spans of calls, and nothing at all without a collector."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from headpond.call import Call, Ended
from headpond.http.app import build_app
from headpond.record import GenAi, WorkloadRecord
from headpond.settings import Settings
from headpond.telemetry.report import CallReport
from headpond.telemetry.spans import RequestSpans, Spans
from headpond.telemetry.tracing import call_tracer
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
NOW_NS = 1_000_000_000_000
REPORT = CallReport(
    call=Call(
        request_id="r1",
        tenant="acme",
        workload="toy",
        model="small",
        items=("my secret prompt",),
        deadline_s=1.0,
        trace=f"00-{TRACE}-{CALLER}-01",
    ),
    outcome="ok",
    work=Work(toys=4, input_tokens=7),
    phases_s={"validate": 0.1, "queue": 0.2, "play": 0.4, "delivery": 0.0},
    first_output_s=0.25,
    gap_s=None,
    total_s=0.7,
)


def spans(record: WorkloadRecord, report: CallReport) -> tuple[ReadableSpan, list[ReadableSpan]]:
    exporter = InMemorySpanExporter()
    gen_ai = GenAi(operation="chat", usage={"toys": "gen_ai.usage.toys"})
    named = replace(record, gen_ai=gen_ai)
    tracer = Spans(SimpleSpanProcessor(exporter), named, "toy-small@1", now_ns=lambda: NOW_NS)
    tracer.observe(report)
    tracer.stop()
    *phases, call = exporter.get_finished_spans()
    return call, phases


def test_a_call_is_a_span_below_its_callers(record: WorkloadRecord) -> None:
    call, _ = spans(record, REPORT)
    assert call.name == "chat small"
    assert call.context is not None
    assert call.parent is not None
    assert f"{call.context.trace_id:032x}" == TRACE
    assert f"{call.parent.span_id:016x}" == CALLER
    assert (call.start_time, call.end_time) == (NOW_NS - 700_000_000, NOW_NS)
    assert call.status.status_code is StatusCode.UNSET
    attributes = dict(call.attributes or {})
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["headpond.workload"] == "toy"
    assert attributes["gen_ai.request.model"] == "small"
    assert attributes["gen_ai.usage.toys"] == 4
    assert attributes["headpond.work.input_tokens"] == 7
    assert "secret" not in str(attributes)


def test_phases_follow_each_other_and_fill_the_call(record: WorkloadRecord) -> None:
    call, phases = spans(record, REPORT)
    assert [phase.name for phase in phases] == ["validate", "queue", "play", "delivery"]
    assert all(phase.parent == call.context for phase in phases)
    edges = [(phase.start_time, phase.end_time) for phase in phases]
    assert [end for _, end in edges[:-1]] == [start for start, _ in edges[1:]]
    assert (edges[0][0], edges[-1][1]) == (call.start_time, call.end_time)
    kinds = [dict(phase.attributes or {})["headpond.phase.kind"] for phase in phases]
    assert kinds == ["host", "queue", "device", "delivery"]


def test_a_call_of_nobodys_trace_starts_one(record: WorkloadRecord) -> None:
    call, _ = spans(record, replace(REPORT, call=replace(REPORT.call, trace=None)))
    assert call.parent is None


def test_a_failed_call_says_how(record: WorkloadRecord) -> None:
    call, phases = spans(record, replace(REPORT, outcome="overloaded", phases_s={}))
    assert phases == []
    assert call.status.status_code is StatusCode.ERROR
    assert dict(call.attributes or {})["error.type"] == "overloaded"


async def test_a_request_is_the_parent_of_its_calls(
    record: WorkloadRecord, backend: ScriptedBackend
) -> None:
    exporter = InMemorySpanExporter()
    tracer = RequestSpans(SimpleSpanProcessor(exporter), now_ns=lambda: NOW_NS)
    app = build_app([record], backend, Settings(), tracer=tracer)
    backend.steps = [[Ended(Work(toys=1))]]
    body = b'{"model": "org/toy-small", "text": "x", "stream": true}'
    for headers in ({"traceparent": f"00-{TRACE}-{CALLER}-01"}, {}):
        await AsgiRequest(path="/v1/toy", parts=[body], headers=headers).run(app)
    first, second = exporter.get_finished_spans()
    for span, call in zip((first, second), backend.calls, strict=True):
        assert span.context is not None
        below = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"
        assert call.trace == below
        assert span.name == "POST /v1/toy"
        assert dict(span.attributes or {})["http.response.status_code"] == 200
    assert first.parent is not None
    assert f"{first.parent.span_id:016x}" == CALLER
    assert backend.calls[0].trace is not None
    assert TRACE in backend.calls[0].trace
    assert second.parent is None


async def test_a_request_that_is_refused_says_why(
    record: WorkloadRecord, backend: ScriptedBackend
) -> None:
    exporter = InMemorySpanExporter()
    tracer = RequestSpans(SimpleSpanProcessor(exporter))
    app = build_app([record], backend, Settings(), tracer=tracer)
    await AsgiRequest(path="/v1/toy", parts=[b'{"text": "no model"}']).run(app)
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == "invalid_request_error"


def test_without_a_collector_nothing_is_loaded() -> None:
    code = (
        "import sys, headpond.telemetry.tracing as t, headpond.settings as s;"
        "assert t.call_tracer(s.Settings(), None, 'b') is None;"
        "assert t.request_tracer(s.Settings()) is None;"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Collector(BaseHTTPRequestHandler):
    """Takes what an exporter posts."""

    posted: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        self.posted.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def posted() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    received: list[tuple[str, bytes]] = []
    handler = type("Handler", (Collector,), {"posted": received})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", received
        server.shutdown()


def test_a_configured_collector_gets_the_spans(
    record: WorkloadRecord, posted: tuple[str, list[tuple[str, bytes]]]
) -> None:
    endpoint, received = posted
    tracer = call_tracer(Settings(otlp_endpoint=endpoint), record, "toy-small@1")
    assert tracer is not None
    tracer.observe(REPORT)
    tracer.stop()
    ((path, body),) = received
    assert path == "/v1/traces"
    assert bytes.fromhex(TRACE) in body
    assert b"secret" not in body
