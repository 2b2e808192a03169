"""Log lines: one per call, in JSON, without anything that callers sent."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from headpond.call import Call
from headpond.errors import Overloaded
from headpond.http.app import ASGIApp
from headpond.settings import Settings
from headpond.telemetry.logs import CallLog, configure_logging
from headpond.telemetry.report import CallReport
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

PROMPT = "my secret prompt"
REPORT = CallReport(
    call=Call(
        request_id="r1",
        tenant="acme",
        workload="toy",
        model="small",
        items=(PROMPT,),
        deadline_s=1.0,
    ),
    outcome="ok",
    work=Work(toys=4),
    phases_s={"queue": 0.2, "play": 0.30001},
    first_output_s=0.25,
    gap_s=None,
    total_s=0.7,
)


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    ours = logging.getLogger("headpond")
    handlers, propagate, level = ours.handlers, ours.propagate, ours.level
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    ours.handlers, ours.propagate = handlers, propagate
    ours.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_finished_call_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Settings())
    CallLog("toy-small@1+0123").observe(REPORT)
    (line,) = lines(capsys)
    assert str(line.pop("timestamp")).endswith("Z")
    assert line == {
        "level": "info",
        "event": "call",
        "request_id": "r1",
        "tenant": "acme",
        "workload": "toy",
        "model": "small",
        "bundle": "toy-small@1+0123",
        "items": 1,
        "stream": False,
        "outcome": "ok",
        "work": {"toys": 4},
        "phases_ms": {"queue": 200.0, "play": 300.01},
        "first_output_ms": 250.0,
        "total_ms": 700.0,
        "preemptions": 0,
    }


async def test_a_request_that_goes_wrong_is_a_line_with_the_traces_identifier(
    app: ASGIApp, backend: ScriptedBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(Settings())
    backend.refusal = Overloaded()
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"x-request-id": "r3", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    body = json.dumps({"model": "org/toy-small", "text": PROMPT}).encode()
    await AsgiRequest(path="/v1/toy", parts=[body], headers=headers).run(app)
    (line,) = lines(capsys)
    del line["timestamp"], line["total_ms"]
    assert line == {
        "level": "info",
        "event": "request",
        "request_id": "r3",
        "trace_id": trace,
        "tenant": "public",
        "workload": "toy",
        "route": "/v1/toy",
        "status": 503,
        "outcome": "overloaded",
        "refused": True,
    }


def test_no_line_holds_what_the_caller_sent(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Settings(log_level="debug"))
    log = CallLog("b")
    for outcome in ("ok", "engine_failed", "request_cancelled"):
        log.observe(replace(REPORT, outcome=outcome))
    assert "secret" not in capsys.readouterr().err


def test_the_level_is_the_operators(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Settings(log_level="warning"))
    CallLog("b").observe(REPORT)
    assert lines(capsys) == []


async def fault(app: ASGIApp, backend: ScriptedBackend) -> None:
    backend.refusal = ZeroDivisionError(f"cannot divide {PROMPT}")
    body = json.dumps({"model": "org/toy-small", "text": PROMPT}).encode()
    await AsgiRequest(path="/v1/toy", parts=[body], headers={"x-request-id": "r2"}).run(app)


async def test_a_fault_is_named_by_type_and_place_only(
    app: ASGIApp, backend: ScriptedBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(Settings())
    await fault(app, backend)
    line, request = lines(capsys)
    assert (request["event"], request["request_id"]) == ("request", "r2")
    del line["timestamp"]
    assert str(line.pop("at")).startswith("scripted.py:")
    assert line == {
        "level": "error",
        "event": "request_fault",
        "request_id": "r2",
        "workload": "toy",
        "fault": "ZeroDivisionError",
    }


async def test_the_stack_trace_is_there_for_those_who_debug(
    app: ASGIApp, backend: ScriptedBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(Settings(log_level="debug"))
    await fault(app, backend)
    line, _ = lines(capsys)
    assert "Traceback" in str(line["exception"])


def test_the_standard_librarys_loggers_write_the_same_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(Settings())
    logger = logging.getLogger("headpond.scheduling")
    fault = ZeroDivisionError(PROMPT)
    logger.error("engine raised %s", "ZeroDivisionError", exc_info=fault)
    logger.debug("not at this level")
    (line,) = lines(capsys)
    assert str(line.pop("timestamp")).endswith("Z")
    assert line == {
        "level": "error",
        "event": "engine raised ZeroDivisionError",
        "fault": "ZeroDivisionError",
    }


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        configure_logging(Settings(), full)
        for _ in range(3):
            CallLog("toy@1").observe(REPORT)
            logging.getLogger("headpond.engine").error("broken")
        with suppress(OSError):  # it still holds a line
            full.close()
