"""Callers who go away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from starlette.types import Message

from headpond.call import Answer, Call, Done, Ended, Output
from headpond.errors import WorkerLost
from headpond.http.app import ASGIApp, build_app
from headpond.record import WorkloadRecord
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

LAST = (Output(0, "two"), Done(0, Work(toys=2)), Ended(work=Work(toys=2)))


def ask(*, stream: bool) -> AsgiRequest:
    body = json.dumps({"model": "org/toy-small", "text": "x", "stream": stream})
    return AsgiRequest(path="/v1/toy", parts=[body.encode()])


async def turns(count: int) -> None:
    """Let the event loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_hanging_up_amid_a_stream_closes_the_answer_at_once(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [[Output(0, "a")], asyncio.Event()]
    request = ask(stream=True)
    task = asyncio.create_task(request.run(app))
    await request.until(chunks=1)
    await turns(3)
    request.hang_up()
    await turns(1)  # the waiting `receive` returns in this turn, and the answer is closed in it
    assert len(backend.closed) == 1
    await task
    assert len(backend.closed) == 1
    assert b"error" not in request.body


async def test_hanging_up_before_the_first_output_sends_nothing(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    for stream in (False, True):
        backend.steps = [asyncio.Event()]
        request = ask(stream=stream)
        task = asyncio.create_task(request.run(app))
        await turns(5)
        request.hang_up()
        await task
        assert request.messages == []
    assert len(backend.closed) == 2


async def test_hanging_up_amid_the_body_sends_nothing(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    request = AsgiRequest(path="/v1/toy", parts=[b'{"model": "org/'], ends=False)
    task = asyncio.create_task(request.run(app))
    await turns(3)
    request.hang_up()
    await task
    assert request.messages == []
    assert backend.calls == []


async def test_hanging_up_while_the_call_is_being_admitted_withdraws_it(
    record: WorkloadRecord, backend: ScriptedBackend
) -> None:
    withdrawn = asyncio.Event()

    class Slow(ScriptedBackend):
        async def submit(self, call: Call) -> Answer:
            try:
                return await asyncio.Future()
            finally:
                withdrawn.set()

    app = build_app([record], Slow(accepted=backend.accepted, cards=backend.cards), Settings())
    request = ask(stream=False)
    task = asyncio.create_task(request.run(app))
    await turns(3)
    request.hang_up()
    await task
    assert withdrawn.is_set()
    assert request.messages == []


async def test_a_server_that_reports_disconnects_after_complete_answers_is_understood(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [[Output(0, "a")], LAST]
    for stream in (False, True):
        messages = await _answered_by_a_server_that_hangs_up_last(app, ask(stream=stream).parts[0])
        assert messages[0]["status"] == 200
        assert not messages[-1].get("more_body", False)
    assert len(backend.closed) == 2


async def _answered_by_a_server_that_hangs_up_last(app: ASGIApp, body: bytes) -> list[Message]:
    complete = asyncio.Event()
    messages: list[Message] = []
    unread: list[Message] = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if unread:
            return unread.pop()
        await complete.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            complete.set()
            await turns(3)

    scope = {"type": "http", "method": "POST", "path": "/v1/toy", "headers": []}
    await app(scope, receive, send)
    return messages


@pytest.mark.parametrize("failing", ["http.response.start", "http.response.body"])
async def test_a_send_that_fails_means_the_caller_is_gone(
    app: ASGIApp, backend: ScriptedBackend, failing: str
) -> None:
    backend.steps = [[Output(0, "a")], LAST]

    async def send(message: Message) -> None:
        if message["type"] == failing:
            raise OSError("gone")

    received: Sequence[Message] = [
        {"type": "http.request", "body": ask(stream=True).parts[0]},
    ]
    unread = list(received)

    async def receive() -> Message:
        if unread:
            return unread.pop()
        return await asyncio.Future()

    scope = {"type": "http", "method": "POST", "path": "/v1/toy", "headers": []}
    await app(scope, receive, send)
    assert len(backend.closed) == 1


async def test_a_server_that_cancels_the_request_closes_the_answer(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [[Output(0, "a")], asyncio.Event()]
    request = ask(stream=True)
    task = asyncio.create_task(request.run(app))
    await request.until(chunks=1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(backend.closed) == 1


async def test_a_server_that_cancels_and_hangs_up_is_obeyed(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.steps = [[Output(0, "a")], asyncio.Event()]
    request = ask(stream=True)
    task = asyncio.create_task(request.run(app))
    await request.until(chunks=1)
    request.hang_up()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(backend.closed) == 1


async def test_a_backend_that_turns_the_hang_up_into_an_error_changes_nothing(
    record: WorkloadRecord, backend: ScriptedBackend
) -> None:
    class Stubborn(ScriptedBackend):
        async def submit(self, call: Call) -> Answer:
            try:
                return await asyncio.Future()
            except asyncio.CancelledError:
                raise WorkerLost from None

    app = build_app([record], Stubborn(accepted=backend.accepted, cards=backend.cards), Settings())
    request = ask(stream=False)
    task = asyncio.create_task(request.run(app))
    await turns(3)
    request.hang_up()
    await task
    assert request.messages == []
