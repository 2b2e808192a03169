"""Server-sent events and signs of life."""

from __future__ import annotations

import asyncio
import json

from headpond.call import Done, Ended, Output
from headpond.dialect import SseEvent
from headpond.http.app import ASGIApp
from headpond.http.sse import frame
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

LAST = (Done(0, Work(toys=2)), Ended(work=Work(toys=2)))


def test_events_are_framed_as_the_standard_says() -> None:
    events = [SseEvent(data='{"a":1}'), SseEvent(data="é", name="word"), SseEvent(data="[DONE]")]
    assert frame(events) == 'data: {"a":1}\n\nevent: word\ndata: é\n\ndata: [DONE]\n\n'.encode()
    assert frame([]) == b""


async def test_an_idle_stream_gives_signs_of_life_until_it_ends(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    step = asyncio.Event()
    backend.steps = [[Output(0, "a")], step, LAST]
    body = json.dumps({"model": "org/toy-small", "text": "x", "stream": True}).encode()
    request = AsgiRequest(path="/v1/toy", parts=[body])
    task = asyncio.create_task(request.run(app))
    await request.until(chunks=4)
    assert request.chunks[1:4] == [b": keep-alive\n\n"] * 3
    step.set()
    await task
    sent = len(request.messages)
    await asyncio.sleep(0.1)  # five times the idle time of the app under test
    assert len(request.messages) == sent
    assert b"[DONE]" in request.chunks[-1]


async def test_a_stream_that_has_not_started_stays_silent(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    step = asyncio.Event()
    backend.steps = [step, LAST]
    body = json.dumps({"model": "org/toy-small", "text": "x", "stream": True}).encode()
    request = AsgiRequest(path="/v1/toy", parts=[body])
    task = asyncio.create_task(request.run(app))
    await asyncio.sleep(0.1)
    assert request.messages == []
    step.set()
    await task
    assert b"keep-alive" not in request.body
