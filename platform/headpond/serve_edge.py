"""Serve's own edge: what it does already is taken off our app, what it overdoes is undone."""

from __future__ import annotations

import json

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headpond.errors import Overloaded
from headpond.http.headers import request_id
from headpond.jobs_wire import FILES_PATH
from headpond.shedding import LateLoop, Shedding

_REQUEST_ID = b"x-request-id"
_DISCONNECT_DISABLED = b"x-request-disconnect-disabled"
_SESSION = b"x-session-id"
_STEERING = frozenset(
    {
        b"x-request-timeout-seconds",
        _DISCONNECT_DISABLED,
        b"serve-multiplexed-model-id",
        b"serve_multiplexed_model_id",
    }
)
"""Headers by which a caller could change how Serve treats a request; none of them is ours."""


SHED = "headpond.shed"

_REFUSAL = json.dumps(
    {
        "error": {
            "message": "More requests come than the server can look at.",
            "type": Overloaded.kind,
            "param": None,
            "code": Overloaded.code,
        }
    }
).encode()
_REFUSAL_START: Message = {
    "type": "http.response.start",
    "status": Overloaded.status,
    "headers": [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(_REFUSAL)).encode()),
        (b"retry-after", b"1"),
    ],
}
_REFUSAL_BODY: Message = {"type": "http.response.body", "body": _REFUSAL}


def before_serve() -> list[Middleware]:
    """Return what Serve puts before itself; `headpond.ray_env` tells it to."""
    return [Middleware(shed), Middleware(plain_headers)]


def shed(app: ASGIApp) -> ASGIApp:
    """Refuse some requests at once when the event loop is late; see `headpond.shedding`.

    Only what asks for work is refused, never a probe. The number of those that were is in the
    scope of all others, under `SHED`, for the metrics.
    """
    shedding = Shedding()
    late = LateLoop(shedding)

    async def edge(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["method"] == "POST":
                late.watch()
                if shedding.refuses(_sender(scope)):
                    await send(_REFUSAL_START)
                    await send(_REFUSAL_BODY)
                    return
            scope[SHED] = shedding.refused
        await app(scope, receive, send)

    return edge


def _sender(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"authorization":
            sender: bytes = value
            return sender
    return b""


def plain_headers(app: ASGIApp) -> ASGIApp:
    """Let Serve see a request identifier by our rules, and nothing else that it acts on.

    It decodes some headers before any app is called, and bytes that are no UTF-8 would be a
    bare 500. A timeout of Serve's would end streams in the middle; ours is
    `x-headpond-deadline-ms`.

    To notice when a caller goes away, Serve reads all that comes, into a queue without
    bounds: whoever sends faster than is taken in fills the memory. The apps of WebSockets
    and of uploaded files read themselves, and notice, so that Serve is told not to.
    """

    async def edge(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = [pair for pair in scope["headers"] if _passes(*pair)]
            identifier = request_id(dict(scope["headers"])).encode()
            headers.append((_REQUEST_ID, identifier))
            if _reads_itself(scope):
                headers.append((_DISCONNECT_DISABLED, b"?1"))
            scope = {**scope, "headers": headers}
        await app(scope, receive, send)

    return edge


def _reads_itself(scope: Scope) -> bool:
    if scope["type"] == "websocket":
        return True
    path: str = scope["path"]
    return scope["method"] == "POST" and path.endswith(FILES_PATH)


def _passes(name: bytes, value: bytes) -> bool:
    if name == _SESSION:
        return value.isascii()
    return name != _REQUEST_ID and name not in _STEERING


def behind_serve(app: ASGIApp) -> ASGIApp:
    """Leave `x-request-id` to Serve, which makes or echoes it on every answer itself."""

    async def edge(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_once(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                message["headers"] = [pair for pair in headers if pair[0] != _REQUEST_ID]
            await send(message)

        await app(scope, receive, send_once)

    return edge
