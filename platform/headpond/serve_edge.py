"""Serve's own edge: what it does already is taken off our app, what it overdoes is undone."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headpond.http.headers import request_id
from headpond.jobs_wire import FILES_PATH

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


def before_serve() -> list[Middleware]:
    """Return what Serve puts before itself; `headpond.ray_env` tells it to."""
    return [Middleware(plain_headers)]


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
