"""What Serve's own edge already does, or does not do well, around the app behind it."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headpond.http.headers import request_id

_REQUEST_ID = b"x-request-id"
_SESSION = b"x-session-id"
_STEERING = frozenset(
    {
        b"x-request-timeout-seconds",
        b"x-request-disconnect-disabled",
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
    bare 500.
    """

    async def edge(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = [pair for pair in scope["headers"] if _passes(*pair)]
            identifier = request_id(dict(scope["headers"])).encode()
            scope = {**scope, "headers": [*headers, (_REQUEST_ID, identifier)]}
        await app(scope, receive, send)

    return edge


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
