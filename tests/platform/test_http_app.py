"""Addresses and methods, whoever owns them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from starlette.types import Message

from headpond.errors import DeclarationError
from headpond.http.app import ASGIApp, build_app
from headpond.record import WorkloadRecord
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend


async def send(app: ASGIApp, method: str, path: str) -> AsgiRequest:
    return await AsgiRequest(
        path=path, method=method, headers={"x-request-id": "r1"}, parts=[b"{}"]
    ).run(app)


@pytest.mark.parametrize("path", ["/nothing", "/v1/toy/", "/v1/toy/x", "/metrics/", "/%00"])
async def test_an_unknown_path_is_a_404_envelope(app: ASGIApp, path: str) -> None:
    request = await send(app, "POST", path)
    assert request.status == 404
    assert json.loads(request.body) == {
        "error": {
            "message": "There is nothing at this address; /openapi.json lists what there is.",
            "type": "invalid_request_error",
            "param": None,
            "code": "not_found",
        }
    }
    assert request.answer_headers["x-request-id"] == "r1"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/", "GET, HEAD"),
        ("GET", "/v1/toy", "POST"),
        ("HEAD", "/v1/toy", "POST"),
        ("DELETE", "/v1/toy", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/v1/models/a/b", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_a_405_that_lists_the_right_ones(
    app: ASGIApp, method: str, path: str, allowed: str
) -> None:
    request = await send(app, method, path)
    assert request.status == 405
    assert request.answer_headers["allow"] == allowed
    error = json.loads(request.body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "method_not_allowed")


@pytest.mark.parametrize(
    ("path", "allowed"), [("/v1/toy", "POST, OPTIONS"), ("/v1/models", "GET, HEAD, OPTIONS")]
)
async def test_options_lists_the_methods(app: ASGIApp, path: str, allowed: str) -> None:
    request = await send(app, "OPTIONS", path)
    assert (request.status, request.body) == (204, b"")
    assert request.answer_headers["allow"] == allowed


async def test_head_is_a_get_without_its_body_to_the_caller(app: ASGIApp) -> None:
    assert (await send(app, "HEAD", "/healthz")).status == 200


async def test_answers_are_counted_by_declared_route_and_status(app: ASGIApp) -> None:
    for path in ("/v1/toy", "/v1/toy", "/secret/1", "/secret/2"):
        await send(app, "POST", path)
    text = (await send(app, "GET", "/metrics")).body.decode()
    assert 'headpond_http_responses_total{route="/v1/toy",status="400"} 2.0' in text
    assert 'headpond_http_responses_total{route="(none)",status="404"} 2.0' in text
    assert "secret" not in text


def test_two_owners_of_one_route_are_refused(
    record: WorkloadRecord, backend: ScriptedBackend
) -> None:
    with pytest.raises(DeclarationError, match="POST /v1/toy is declared 2 times"):
        build_app([record, replace(record, name="twin")], backend, Settings())
    taken = replace(record.routes[0], method="GET", path="/v1/models")
    with pytest.raises(DeclarationError, match="GET /v1/models"):
        build_app([replace(record, routes=(taken,))], backend, Settings())


async def exchanged(app: ASGIApp, kind: str, *received: str) -> list[str]:
    """Return the types of the messages that the app sends outside of HTTP."""
    unread = list(received)
    sent: list[str] = []

    async def receive() -> Message:
        return {"type": unread.pop(0)}

    async def send_back(message: Message) -> None:
        sent.append(message["type"])

    scope = {"type": kind, "path": "/v1/nothing", "headers": [], "asgi": {"version": "3.0"}}
    await app(scope, receive, send_back)
    return sent


async def test_a_server_can_start_and_stop_it(app: ASGIApp) -> None:
    received = ("lifespan.startup", "lifespan.shutdown")
    sent = await exchanged(app, "lifespan", *received)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_socket_nobody_serves_is_closed(app: ASGIApp) -> None:
    assert await exchanged(app, "websocket", "websocket.connect") == ["websocket.close"]
