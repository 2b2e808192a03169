"""Which web pages may call: whoever is no browser sends no origin."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from headpond.call import Done, Ended, Output
from headpond.config_file import SettingsError
from headpond.http.app import ASGIApp, build_app
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest, AsgiSocket
from headpond.testing.scripted import ScriptedBackend
from headpond.testing.talking import talking_record
from headpond.units import Work
from talks import HeldBackend

MakeApp = Callable[[Settings], ASGIApp]
HOST = {"host": "localhost:8000"}
APP = "https://app.example"
TALK = "/v1/talk"


def settings(**given: object) -> Settings:
    return Settings.read(given)


@pytest.fixture
def make(make_app: MakeApp, backend: ScriptedBackend) -> MakeApp:
    backend.steps = [[Output(0, "x"), Done(0, Work(toys=1)), Ended(work=Work(toys=1))]]
    return make_app


async def post(app: ASGIApp, path: str = "/v1/toy", **headers: str) -> AsgiRequest:
    body = json.dumps({"model": "org/toy-small", "text": "x"}).encode()
    sent = {name.replace("_", "-"): value for name, value in {**HOST, **headers}.items()}
    return await AsgiRequest(path=path, parts=[body], headers=sent).run(app)


async def preflight(app: ASGIApp, origin: str) -> AsgiRequest:
    headers = {
        **HOST,
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
        "access-control-request-private-network": "true",
    }
    return await AsgiRequest(path="/v1/toy", method="OPTIONS", headers=headers).run(app)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://localhost:8001",
        "http://localhost",
        "http://localhost:8000.evil.example",
        "http://evil.example@localhost:8000",
        "http://localhost:port",
        "ftp://localhost:8000",
        "localhost:8000",
        "null",
        "",
        APP,
    ],
)
async def test_pages_of_other_sites_are_refused_before_anything_is_read(
    make: MakeApp, backend: ScriptedBackend, origin: str
) -> None:
    app = make(settings())
    for path in ("/v1/toy", "/v1/models", "/nowhere"):
        request = await post(app, path, origin=origin, content_type="text/plain", x_request_id="r1")
        assert request.status == 403
        assert json.loads(request.body)["error"] == {
            "message": "Pages of this origin may not call this server.",
            "type": "invalid_request_error",
            "param": None,
            "code": "origin_not_allowed",
        }
        assert request.answer_headers["x-request-id"] == "r1"
        assert "access-control-allow-origin" not in request.answer_headers
    assert backend.calls == []
    assert (await preflight(app, origin)).status == 403


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8000", "localhost:8000"),
        ("http://LOCALHOST:8000", "localhost:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://model.example", "model.example"),
        ("https://model.example", "model.example"),  # TLS ends before us
        ("https://model.example", "model.example:443"),
    ],
)
async def test_the_servers_own_pages_may_call(make: MakeApp, origin: str, host: str) -> None:
    request = await post(make(settings()), origin=origin, host=host)
    assert request.status == 200


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", ""])
async def test_who_is_no_browser_is_left_alone(make: MakeApp, content_type: str) -> None:
    request = await post(make(settings()), content_type=content_type)
    assert request.status == 200
    assert "access-control-allow-origin" not in request.answer_headers


async def test_a_host_that_was_forwarded_counts_where_the_proxy_is_trusted(make: MakeApp) -> None:
    asked = {"origin": "https://model.example", "x_forwarded_host": "model.example"}
    assert (await post(make(settings()), **asked)).status == 403
    trusting = make(settings(trust_forwarded_host=True))
    assert (await post(trusting, **asked)).status == 200
    assert (await post(trusting, origin="http://localhost:8000")).status == 200
    elsewhere = await post(trusting, origin="http://localhost:8000", x_forwarded_host="m.example")
    assert elsewhere.status == 403


async def test_allowed_pages_may_call_and_read_the_answer(make: MakeApp) -> None:
    app = make(settings(allowed_origins=[APP]))
    request = await post(app, origin=APP)
    assert request.status == 200
    headers = request.answer_headers
    assert headers["access-control-allow-origin"] == APP
    assert "Origin" in headers["vary"]
    assert "x-request-id" in headers["access-control-expose-headers"]
    assert (await post(app, origin="http://evil.example")).status == 403
    assert (await post(app, origin="http://localhost:8000")).status == 200
    refused = await post(app, "/v1/nowhere", origin=APP)
    assert (refused.status, refused.answer_headers["access-control-allow-origin"]) == (404, APP)


async def test_a_browser_that_asks_first_is_told(make: MakeApp) -> None:
    app = make(settings(allowed_origins=[APP]))
    answer = await preflight(app, APP)
    assert answer.status == 200
    headers = answer.answer_headers
    assert headers["access-control-allow-origin"] == APP
    assert "POST" in headers["access-control-allow-methods"]
    assert "x-stainless-os" in headers["access-control-allow-headers"]
    assert headers["access-control-allow-private-network"] == "true"
    assert (await preflight(app, "http://evil.example")).status == 403


async def test_refusals_are_counted(make: MakeApp) -> None:
    app = make(settings(metrics_open=True))
    await post(app, origin="http://evil.example")
    metrics = await AsgiRequest(path="/metrics", method="GET", headers=HOST).run(app)
    assert b'headpond_http_responses_total{route="(none)",status="403"} 1.0' in metrics.body


async def opened(given: Settings, headers: Mapping[str, str], *extensions: str) -> AsgiSocket:
    app = build_app([talking_record()], HeldBackend(), given)
    socket = AsgiSocket(path=TALK, headers={**HOST, **headers}, extensions=extensions)
    return await socket.open(app)


async def test_websockets_of_other_sites_are_refused() -> None:
    refused = await opened(settings(), {"origin": "http://evil.example"}, "websocket.http.response")
    assert refused.messages[0]["type"] == "websocket.http.response.start"
    assert refused.messages[0]["status"] == 403
    assert json.loads(refused.messages[1]["body"])["error"]["code"] == "origin_not_allowed"
    closed = await opened(settings(), {"origin": "null"})
    assert closed.closed == (4403, "origin_not_allowed")


@pytest.mark.parametrize("headers", [{}, {"origin": "http://localhost:8000"}, {"origin": APP}])
async def test_other_websockets_are_opened(headers: Mapping[str, str]) -> None:
    socket = await opened(settings(allowed_origins=[APP]), headers)
    assert socket.messages[0]["type"] == "websocket.accept"
    socket.hang_up()
    await socket.ended()


@pytest.mark.parametrize("origin", ["*", "null", "app.example", f"{APP}/", f"{APP}/page", ""])
def test_what_no_browser_says_is_no_origin(origin: str) -> None:
    with pytest.raises(SettingsError, match=r"allowed_origins\.0"):
        settings(allowed_origins=[origin])
