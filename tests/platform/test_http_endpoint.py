"""One route, from the request's headers and body to the last byte of the answer."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from starlette.types import Receive, Scope, Send

from headpond.admission.too_many import TooMany
from headpond.call import Done, Ended, Failed, Output, Priority
from headpond.errors import (
    DeadlineExceeded,
    EngineFailed,
    HeadpondError,
    Overloaded,
    RateLimited,
    WorkerLost,
)
from headpond.http.app import ASGIApp, build_app
from headpond.http.endpoint import Patience
from headpond.record import WorkloadRecord
from headpond.repeats import PASSAGE, Passage
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend, Step
from headpond.units import Work

MODEL = "org/toy-small"
PHASES = {"validate": 0.001, "queue": 0.002, "play": 0.004, "delivery": 0.0}
ENDED = Ended(work=Work(toys=2), phases_s=PHASES)
LAST = (Output(0, "two"), Done(0, Work(toys=2)), ENDED)
BUNDLE = "toy-small@1+0123456789ab"


def ask(
    *, stream: bool = False, path: str = "/v1/toy", headers: dict[str, str] | None = None
) -> AsgiRequest:
    body = json.dumps({"model": MODEL, "text": "x", "stream": stream, "unknown": [1]})
    return AsgiRequest(path=path, parts=[body.encode()], headers=headers or {})


def timings(text: str) -> dict[str, float]:
    return {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([0-9.]+)", text)}


async def test_a_whole_answer_is_one_body_with_all_headers(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [[Output(0, "one")], LAST]
    request = await ask(headers={"x-request-id": "my.id-1"}).run(app)
    assert request.status == 200
    assert json.loads(request.body) == {"model": MODEL, "text": "one two", "bundle": BUNDLE}
    headers = request.answer_headers
    assert headers["content-type"] == "application/json"
    assert headers["content-length"] == str(len(request.body))
    assert headers["x-request-id"] == "my.id-1"
    assert headers["x-headpond-bundle"] == BUNDLE
    assert headers["x-headpond-work"] == "toys=2"
    assert backend.closed == ["my.id-1"]


async def test_server_timing_has_every_phase_in_order_and_what_the_replica_measured(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [LAST]
    spent = timings((await ask().run(app)).answer_headers["server-timing"])
    assert list(spent) == ["validate", "queue", "play", "delivery"]
    assert spent["queue"] == 2.0
    assert spent["play"] == 4.0
    assert spent["validate"] > 1.0


async def test_a_stream_is_one_chunk_per_step_and_says_what_it_may_cost(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [[Output(0, "a"), Output(0, "b")], [Output(0, "c")], LAST]
    request = await ask(stream=True).run(app)
    assert request.status == 200
    assert request.answer_headers["content-type"] == "text/event-stream; charset=utf-8"
    assert request.answer_headers["x-headpond-bundle"] == BUNDLE
    assert request.answer_headers["x-headpond-work"] == "toys=9"
    first, second, last = request.chunks
    assert first == b'event: word\ndata: {"word":"a"}\n\nevent: word\ndata: {"word":"b"}\n\n'
    assert second == b'event: word\ndata: {"word":"c"}\n\n'
    events, _, timing = last.partition(b": server-timing: ")
    assert events == b'event: word\ndata: {"word":"two"}\n\ndata: [DONE]\n\n'
    assert list(timings(timing.decode())) == ["validate", "queue", "play", "delivery"]
    assert timing.endswith(b"\n\n")
    assert [message.get("more_body", False) for message in request.messages[1:]] == [True] * 2 + [
        False
    ]


async def test_the_first_chunk_is_sent_before_the_next_step_is_there(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    step = asyncio.Event()
    backend.steps = [[Output(0, "a")], step, LAST]
    request = ask(stream=True)
    task = asyncio.create_task(request.run(app))
    await request.until(chunks=1)
    assert b'"a"' in request.body
    step.set()
    await task
    assert b"[DONE]" in request.body


@pytest.mark.parametrize("stream", [False, True])
async def test_an_identifier_is_made_when_the_callers_is_absent_or_unusable(
    app: ASGIApp, backend: ScriptedBackend, *, stream: bool
) -> None:
    backend.steps = [LAST]
    made = set()
    for headers in ({}, {"x-request-id": "no spaces"}, {"x-request-id": "x" * 129}):
        request = await ask(stream=stream, headers=headers).run(app)
        made.add(request.answer_headers["x-request-id"])
    assert len(made) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", identifier) for identifier in made)
    assert [call.request_id in made for call in backend.calls] == [True] * 3


async def test_the_call_says_what_the_headers_ask(app: ASGIApp, backend: ScriptedBackend) -> None:
    backend.steps = [LAST]
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await ask(
        headers={
            "x-headpond-priority": "Urgent",
            "x-headpond-deadline-ms": "5000",
            "x-headpond-session": "chat-7",
            "x-request-timeout-seconds": "0.001",
            "traceparent": trace,
        }
    ).run(app)
    await ask(headers={"traceparent": "nonsense", "x-headpond-deadline-ms": "999999999"}).run(app)
    first, second = backend.calls
    assert (first.tenant, first.workload, first.model) == ("public", "toy", MODEL)
    assert first.items == ("x",)
    assert first.priority is Priority.URGENT
    assert first.trace == trace
    assert (first.session, first.lot) == ("chat-7", "chat-7")
    assert (second.session, second.lot) == (None, second.request_id)
    assert 4.0 < first.deadline_s <= 5.0
    assert second.priority is Priority.NORMAL
    assert second.trace is None
    assert 29.0 < second.deadline_s <= 30.0


@pytest.mark.parametrize(
    ("header", "given"),
    [
        ("x-headpond-deadline-ms", "soon"),
        ("x-headpond-deadline-ms", "1.5"),
        ("x-headpond-deadline-ms", "9" * 5000),
        ("x-headpond-priority", "first"),
        ("x-headpond-session", "no spaces"),
    ],
)
async def test_a_bad_header_is_named(
    app: ASGIApp, backend: ScriptedBackend, header: str, given: str
) -> None:
    request = await ask(headers={header: given}).run(app)
    assert request.status == 400
    assert json.loads(request.body)["error"]["param"] == header
    assert backend.calls == []


@pytest.mark.parametrize("left_ms", ["0", "-3"])
async def test_no_time_left_is_a_missed_deadline(
    app: ASGIApp, backend: ScriptedBackend, left_ms: str
) -> None:
    request = await ask(headers={"x-headpond-deadline-ms": left_ms}).run(app)
    assert request.status == 408
    assert request.answer_headers["x-should-retry"] == "false"
    assert backend.calls == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_backend_that_stands_still_is_left_at_the_deadline(
    app: ASGIApp, backend: ScriptedBackend, *, stream: bool
) -> None:
    backend.steps = [asyncio.Event()]
    request = await ask(stream=stream, headers={"x-headpond-deadline-ms": "20"}).run(app)
    assert request.status == 408
    assert json.loads(request.body)["error"] == {
        "message": "The deadline passed before the request was done.",
        "type": "timeout_error",
        "param": None,
        "code": "deadline_exceeded",
    }
    assert request.answer_headers["x-should-retry"] == "false"
    assert len(backend.closed) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_ready_after_the_deadline_is_late(
    record: WorkloadRecord, backend: ScriptedBackend, *, stream: bool
) -> None:
    app = build_app([record], backend, Settings(), patience=Patience(grace_s=30.0))
    step = asyncio.Event()
    backend.steps = [step, LAST]
    asyncio.get_running_loop().call_later(0.03, step.set)
    request = await ask(stream=stream, headers={"x-headpond-deadline-ms": "10"}).run(app)
    assert request.status == 408
    assert json.loads(request.body)["error"]["code"] == "deadline_exceeded"


async def test_a_late_end_of_a_stream_is_an_error_event(
    record: WorkloadRecord, backend: ScriptedBackend
) -> None:
    app = build_app([record], backend, Settings(), patience=Patience(grace_s=30.0))
    step = asyncio.Event()
    backend.steps = [[Output(0, "a")], step, LAST]
    request = ask(stream=True, headers={"x-headpond-deadline-ms": "500"})
    task = asyncio.create_task(request.run(app))
    await request.until(chunks=1)
    asyncio.get_running_loop().call_later(0.6, step.set)
    await task
    assert b'"a"' in request.body
    assert b"deadline_exceeded" in request.chunks[-1]
    assert b"[DONE]" not in request.body


async def test_a_deadline_amid_a_stream_is_an_error_event_and_never_done(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [[Output(0, "a")], asyncio.Event()]
    request = await ask(stream=True, headers={"x-headpond-deadline-ms": "50"}).run(app)
    last = json.loads(request.chunks[-1].removeprefix(b"data: "))
    assert last["error"]["code"] == "deadline_exceeded"
    assert b"[DONE]" not in request.body
    assert not request.messages[-1].get("more_body", False)
    assert len(backend.closed) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("error", [Overloaded(retry_after_s=2.5), RateLimited(retry_after_s=0.2)])
async def test_a_refusal_says_when_to_come_again(
    app: ASGIApp, backend: ScriptedBackend, error: HeadpondError, *, stream: bool
) -> None:
    backend.refusal = error
    request = await ask(stream=stream).run(app)
    assert request.status == error.status
    assert request.answer_headers["content-type"] == "application/json"
    assert request.answer_headers["x-should-retry"] == "true"
    waits = {2.5: ("3", "2500"), 0.2: ("1", "200")}[error.retry_after_s or 0]
    headers = request.answer_headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == waits


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_output_is_a_status(
    app: ASGIApp, backend: ScriptedBackend, *, stream: bool
) -> None:
    scripts: tuple[list[Step], ...] = (
        [[Failed(0, EngineFailed("broken"))], [ENDED]],
        [[], [Failed(0, EngineFailed("broken")), ENDED]],
        [EngineFailed("broken")],
    )
    for steps in scripts:
        backend.steps = steps
        request = await ask(stream=stream).run(app)
        assert request.status == 500
        assert json.loads(request.body)["error"]["code"] == "engine_failed"
        assert request.answer_headers["x-should-retry"] == "false"
        assert request.answer_headers["x-headpond-bundle"] == BUNDLE
    assert len(backend.closed) == 3


@pytest.mark.parametrize(
    "failure", [[Failed(0, EngineFailed("broken")), ENDED], EngineFailed("broken")]
)
async def test_a_failure_amid_a_stream_is_its_last_event(
    app: ASGIApp, backend: ScriptedBackend, failure: Step
) -> None:
    backend.steps = [[Output(0, "a")], failure]
    request = await ask(stream=True).run(app)
    assert request.status == 200
    assert request.chunks[-1] == (
        b'data: {"error": {"message": "broken", "type": "server_error", '
        b'"param": null, "code": "engine_failed"}}\n\n'
    )
    assert b"[DONE]" not in request.body
    assert len(backend.closed) == 1


async def test_an_answer_that_just_stops_is_a_lost_worker(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [[Output(0, "a")]]
    assert (await ask().run(app)).status == WorkerLost.status
    request = await ask(stream=True).run(app)
    assert b'"worker_lost"' in request.chunks[-1]
    assert b"[DONE]" not in request.body


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_of_ours_is_a_bare_500(
    app: ASGIApp, backend: ScriptedBackend, *, stream: bool
) -> None:
    backend.steps = [ZeroDivisionError("secret prompt")]
    request = await ask(stream=stream).run(app)
    assert request.status == 500
    assert json.loads(request.body)["error"]["type"] == "server_error"
    assert b"secret" not in request.body
    assert len(backend.closed) == 1


async def test_a_timeout_inside_the_backend_is_not_the_callers_deadline(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [TimeoutError()]
    assert (await ask().run(app)).status == 500


async def test_a_route_without_events_refuses_to_stream(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    request = await ask(stream=True, path="/v1/toy/whole").run(app)
    assert request.status == 400
    assert json.loads(request.body)["error"]["param"] == "stream"
    assert backend.calls == []


async def test_the_deadline_error_of_the_backend_is_kept(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [DeadlineExceeded("mine")]
    assert json.loads((await ask().run(app)).body)["error"]["message"] == "mine"


async def test_it_serves_below_a_prefix(app: ASGIApp, backend: ScriptedBackend) -> None:
    backend.steps = [LAST]
    for path in ("/models/toy/v1/toy", "/v1/toy"):
        request = ask(path=path)
        request.root_path = "/models/toy"
        assert (await request.run(app)).status == 200
    stranger = ask(path="/models/toys/v1/toy")
    stranger.root_path = "/models/toy"
    assert (await stranger.run(app)).status == 404


async def test_what_would_wait_too_long_is_refused_before_its_body_is_read(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.hopeless = Overloaded("too much to do", retry_after_s=3.0)
    request = AsgiRequest(path="/v1/toy", parts=[b"no JSON"])
    await request.run(app)
    assert request.status == 503
    assert request.answer_headers["retry-after"] == "3"
    assert json.loads(request.body)["error"]["code"] == "overloaded"
    assert not backend.calls


async def test_where_all_of_a_line_are_refused_the_edge_refuses_the_next_ones(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    for refusal in (Overloaded(), TooMany.for_a_while(0.2)):
        backend.hopeless = refusal
        told: list[float] = []

        async def edge(
            scope: Scope, receive: Receive, send: Send, told: list[float] = told
        ) -> None:
            await app({**scope, PASSAGE: Passage(0, told.append)}, receive, send)

        request = await AsgiRequest(path="/v1/toy", parts=[b"no JSON"]).run(edge)
        assert json.loads(request.body)["error"]["code"] == "overloaded"
        assert told == ([0.2] if isinstance(refusal, TooMany) else [])
