"""What stands between Serve's edge and our app, and a real server's sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import create_server

import pytest
import uvicorn
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from headpond.http.app import ASGIApp, build_app
from headpond.ray_env import RAY_ENV
from headpond.repeats import PASSAGE, Passage
from headpond.serve_edge import before_serve, named_absence, plain_headers
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest
from headpond.testing.listening import Letters
from headpond.testing.talking import TALK_PATH, talking_record
from talks import HeldBackend

SECRET_BYTES = b"caf\xe9\xff"


async def seen_by_serve(
    *headers: tuple[bytes, bytes], kind: str = "http", path: str = "/v1/echo"
) -> list[tuple[bytes, bytes]]:
    seen: list[tuple[bytes, bytes]] = []

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend(scope["headers"])

    async def unused() -> None:
        raise NotImplementedError

    scope = {"type": kind, "method": "POST", "path": path, "headers": list(headers)}
    await plain_headers(serve)(scope, unused, unused)  # type: ignore[arg-type]
    assert scope["headers"] == list(headers)
    return seen


async def answered(path: str, app: ASGIApp) -> AsgiRequest:
    request = AsgiRequest(path=path, method="GET")
    await request.run(named_absence(app))
    return request


async def test_what_serve_does_not_know_now_is_to_come_back() -> None:
    text = "Path '/v1/echo' not found. Ping http://.../-/routes for available routes."
    found = await answered("/v1/echo", PlainTextResponse(text, 404, {"x-request-id": "r-7"}))
    assert found.status == 503
    assert json.loads(found.body)["error"]["code"] == "model_not_ready"
    assert found.answer_headers["retry-after"] == "1"
    assert found.answer_headers["x-request-id"] == "r-7"
    assert found.answer_headers["content-type"] == "application/json"
    assert found.answer_headers["content-length"] == str(len(found.body))


@pytest.mark.parametrize("status", [200, 404])
async def test_other_answers_stay_as_they_are(status: int) -> None:
    content = {"error": {"code": "not_found"}}
    found = await answered("/v1/echo", JSONResponse(content, status))
    assert (found.status, json.loads(found.body)) == (status, content)


@pytest.mark.parametrize("given", [b"r-7", b"a.b:c/d"])
async def test_a_plain_request_identifier_stays(given: bytes) -> None:
    assert (b"x-request-id", given) in await seen_by_serve((b"x-request-id", given))


@pytest.mark.parametrize("given", [SECRET_BYTES, b"", b"a b", b"x" * 129])
async def test_another_one_is_replaced_by_a_new_one(given: bytes) -> None:
    (pair,) = await seen_by_serve((b"x-request-id", given))
    assert pair[0] == b"x-request-id"
    assert pair[1].decode("ascii").isalnum()


async def test_what_serve_would_act_on_is_taken_away() -> None:
    kept = (b"authorization", SECRET_BYTES)
    steering = [
        (b"x-session-id", SECRET_BYTES),
        (b"x-request-timeout-seconds", b"0.001"),
        (b"x-request-disconnect-disabled", b"?1"),
        (b"serve_multiplexed_model_id", SECRET_BYTES),
    ]
    assert [name for name, _ in await seen_by_serve(kept, *steering)] == [
        b"authorization",
        b"x-request-id",
    ]
    assert (b"x-session-id", b"s") in await seen_by_serve((b"x-session-id", b"s"))


def test_serve_takes_it_by_the_address_in_the_environment() -> None:
    module, _, name = RAY_ENV["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].partition(":")
    assert (before_serve.__module__, before_serve.__name__) == (module, name)


async def test_serve_is_told_to_read_sockets_and_files_no_faster_than_the_app() -> None:
    told = (b"x-request-disconnect-disabled", b"?1")
    refused = (b"x-request-disconnect-disabled", b"?0")
    assert told in await seen_by_serve(refused, kind="websocket")
    assert told in await seen_by_serve(refused, path="/v1/files")
    assert refused not in await seen_by_serve(refused, kind="websocket")
    assert told not in await seen_by_serve(told)


async def test_what_the_edge_refused_is_counted_where_the_rest_is() -> None:
    app = build_app([talking_record()], HeldBackend(), Settings())

    async def edge(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, PASSAGE: Passage(7, lambda _: None)}, receive, send)

    found = await AsgiRequest(path="/metrics", method="GET").run(edge)
    assert "headpond_http_shed_total 7.0" in found.body.decode()


@asynccontextmanager
async def served(app: ASGIApp, **options: float) -> AsyncIterator[str]:
    """Serve an app by uvicorn on this event loop, and yield the address of its socket."""
    config = uvicorn.Config(
        app,
        log_level="error",
        ws_ping_interval=options.get("ping_s"),
        ws_ping_timeout=options.get("ping_s"),
    )
    server = uvicorn.Server(config)
    with create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.001)
            yield f"ws://127.0.0.1:{listening.getsockname()[1]}{TALK_PATH}"
        finally:
            server.should_exit = True
            await task


async def test_who_sends_too_fast_is_held_up_by_its_own_connection() -> None:
    backend = HeldBackend()
    app = build_app([talking_record()], backend, Settings())
    async with served(app, ping_s=0.05) as address:
        async with connect(address, ping_interval=None, compression=None) as socket:
            await socket.send('{"open": "ear"}')
            while "opened" not in await socket.recv():
                pass
            answer = backend.answers[0]
            answer.room.clear()
            message = b"x" * 500_000
            sending = asyncio.create_task(_send(socket, [message] * 60))
            await asyncio.sleep(0.3)  # some pings of the server time out meanwhile
            assert not sending.done()
            assert not answer.fed
            answer.room.set()
            await sending
            await socket.send('{"say": "last"}')
            while "last" not in str(await socket.recv()):
                pass
        assert answer.fed == [Letters(message.decode())] * 60 + [Letters("last")]


async def _send(socket: ClientConnection, messages: list[bytes]) -> None:
    for message in messages:
        await socket.send(message)


async def test_a_server_that_stops_closes_with_service_restart() -> None:
    backend = HeldBackend()
    app = build_app([talking_record()], backend, Settings())
    async with served(app) as address:
        socket = await connect(address)
        await socket.send('{"open": "ear"}')
        while "opened" not in await socket.recv():
            pass
    with pytest.raises(ConnectionClosed):
        await socket.recv()
    assert socket.close_code == 1012
    assert backend.answers[0].closed


async def test_a_refused_handshake_is_an_answer_that_clients_can_read() -> None:
    settings = Settings.model_validate({"keys": [{"key": "sk-one"}]})
    app = build_app([talking_record()], HeldBackend(), settings)
    async with served(app) as address:
        with pytest.raises(InvalidStatus) as refused:
            await connect(address)
        response = refused.value.response
        assert response.status_code == 401
        assert json.loads(response.body or b"")["error"]["code"] == "invalid_api_key"
        offered = [Subprotocol("openai-insecure-api-key.sk-one"), Subprotocol("realtime")]
        async with connect(address, subprotocols=offered) as socket:
            assert socket.subprotocol == "realtime"
