"""Serve's own edge: what it does already is taken off our app, what it overdoes is undone."""

from __future__ import annotations

import json
import time
from functools import partial
from http import HTTPStatus

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headpond.errors import NotReady, Overloaded
from headpond.http.errors import error_answer, error_headers
from headpond.http.headers import request_id
from headpond.jobs_wire import FILES_PATH
from headpond.repeats import PASSAGE, Likeness, Passage, Repeats, likeness
from headpond.shedding import LateLoop, Shedding

_REQUEST_ID = b"x-request-id"
_DISCONNECT_DISABLED = b"x-request-disconnect-disabled"
_SESSION = b"x-session-id"
_NOT_FOUND = HTTPStatus.NOT_FOUND
_UNKNOWN_PATH = b"Path '"
"""How Serve's own answer begins; ours are JSON."""
_OF_BODIES = frozenset({b"content-type", b"content-length"})
_RETRY_AFTER_S = 1.0
_STEERING = frozenset(
    {
        b"x-request-timeout-seconds",
        _DISCONNECT_DISABLED,
        b"serve-multiplexed-model-id",
        b"serve_multiplexed_model_id",
    }
)
"""Headers by which a caller could change how Serve treats a request; none of them is ours."""

_REFUSAL = json.dumps(
    {
        "error": {
            "message": "More requests come than can be looked at, or than are done.",
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
    return [Middleware(shed), Middleware(named_absence), Middleware(plain_headers)]


def shed(app: ASGIApp) -> ASGIApp:
    """Refuse some requests at once: when the event loop is late, or when they would be anyway.

    See `headpond.shedding` and `headpond.repeats`. Only what asks for work is refused, never a
    probe. All others carry a `Passage`.
    """
    shedding = Shedding()
    late = LateLoop(shedding)
    repeats = Repeats()
    refused = 0

    async def edge(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal refused
        if scope["type"] == "http":
            request = likeness(scope)
            if scope["method"] == "POST":
                late.watch()
                known = repeats.refuses(request, time.monotonic())
                if shedding.refuses(_sender(scope)) or known:
                    refused += 1
                    await send(_REFUSAL_START)
                    await send(_REFUSAL_BODY)
                    return
            scope[PASSAGE] = Passage(refused, partial(refuse_alike, request))
        await app(scope, receive, send)

    def refuse_alike(request: Likeness, for_s: float) -> None:
        repeats.refuse(request, for_s, time.monotonic())

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


def named_absence(app: ASGIApp) -> ASGIApp:
    """Say of what Serve does not know, now, that it is to come back.

    While applications go, HAProxy has a proxy of Serve's answer for them that knows them no
    more. Its 404 would be sent again by no client. What nothing serves at all is HAProxy's,
    or the router's, to say.
    """

    async def edge(scope: Scope, receive: Receive, send: Send) -> None:
        unsent: list[Message] = []

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == _NOT_FOUND:
                unsent.append(message)
                return
            if unsent:
                start = unsent.pop()
                if message.get("body", b"").startswith(_UNKNOWN_PATH):
                    start, message = _away(start)
                await send(start)
            await send(message)

        await app(scope, receive, send_named if scope["type"] == "http" else send)

    return edge


def _away(start: Message) -> tuple[Message, Message]:
    """Return what is sent in place of Serve's answer, with that one's other headers."""
    error = NotReady("Nothing runs that could answer.", retry_after_s=_RETRY_AFTER_S)
    answer = error_answer(error, None)
    body = json.dumps(answer.body).encode()
    headers = [pair for pair in start["headers"] if pair[0] not in _OF_BODIES]
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *error_headers(error),
    ]
    return (
        {**start, "status": answer.status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )


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
