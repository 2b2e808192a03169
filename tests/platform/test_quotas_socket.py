"""Quotas of who comes by WebSocket: told with the handshake, taken by each call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from headpond.call import Done, Ended
from headpond.http.app import ASGIApp, build_app
from headpond.settings import Settings
from headpond.testing.asgi import AsgiSocket
from headpond.testing.talking import TALK_PATH, talking_record
from headpond.units import Work
from talks import HeldBackend

ADMITTED = 9
"""Letters that each call of `HeldBackend` may cost."""


@pytest.fixture
def backend() -> HeldBackend:
    return HeldBackend()


def app_over(backend: HeldBackend, *quotas: Mapping[str, object]) -> ASGIApp:
    listed = [{"per": "30d", **quota} for quota in quotas]
    settings = {"tenants": {"public": {"quotas": listed}}}
    return build_app([talking_record()], backend, Settings.model_validate(settings))


async def connect(app: ASGIApp) -> AsgiSocket:
    return await AsgiSocket(path=TALK_PATH).open(app)


def left(socket: AsgiSocket, unit: str) -> int:
    """Return what the handshake's answer says is left."""
    headers = dict(socket.messages[0]["headers"])
    return int(headers[f"x-ratelimit-remaining-{unit}".encode()])


async def until(socket: AsgiSocket, key: str) -> dict[str, Any]:
    """Return the first message that has a key, when it has come."""
    async with asyncio.timeout(5.0):
        while True:
            for text in socket.texts:
                said: dict[str, Any] = json.loads(text)
                if key in said:
                    return said
            await socket.until(len(socket.messages) + 1)


async def left_later(app: ASGIApp, unit: str, expected: int) -> None:
    """Wait until so much is left: what is settled is in the store soon after."""
    async with asyncio.timeout(5.0):
        while True:
            socket = await connect(app)
            found = left(socket, unit)
            socket.hang_up(1000)
            await socket.ended()
            if found == expected:
                return
            await asyncio.sleep(0.001)


async def test_a_handshake_tells_and_each_call_takes(backend: HeldBackend) -> None:
    app = app_over(backend, {"unit": "letters", "limit": 20})
    socket = await connect(app)
    assert left(socket, "letters") == 20
    socket.say('{"open": "ear"}')
    await until(socket, "opened")
    await left_later(app, "letters", 20 - ADMITTED)
    work = Work(letters=4)
    backend.answers[0].given.put_nowait([Done(0, work), Ended(work)])
    await until(socket, "ended")
    await left_later(app, "letters", 16)
    socket.hang_up(1000)
    await socket.ended()


async def test_a_call_beyond_the_quota_is_refused_amid_the_session(backend: HeldBackend) -> None:
    app = app_over(backend, {"unit": "requests", "limit": 1})
    first, second = await connect(app), await connect(app)
    for socket, key in ((first, "opened"), (second, "error")):
        socket.say('{"open": "ear"}')
        await until(socket, key)
    assert len(backend.calls) == 1
    refused = await connect(app)
    await refused.ended()
    assert refused.messages[0]["status"] == 429
    assert left(refused, "requests") == 0
    assert json.loads(refused.messages[1]["body"])["error"]["code"] == "rate_limit_exceeded"
    for socket in (first, second):
        socket.hang_up(1000)
        await socket.ended()


async def test_a_client_that_leaves_is_charged_for_what_ran(backend: HeldBackend) -> None:
    app = app_over(backend, {"unit": "letters", "limit": 20})
    socket = await connect(app)
    socket.say('{"open": "ear"}')
    await until(socket, "opened")
    backend.answers[0].last_word.know(Work(letters=3))  # as a replica does after its step
    socket.hang_up(1000)
    await socket.ended()
    await left_later(app, "letters", 17)
