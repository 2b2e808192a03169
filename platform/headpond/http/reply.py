"""The answer to one request as ASGI messages, whole or streamed, good or bad."""

from __future__ import annotations

import json
from contextlib import suppress

from starlette.types import Send

from headpond.call import Accepted
from headpond.dialect import ErrorForm, SseEvent
from headpond.errors import HeadpondError
from headpond.http.errors import RawHeaders, error_answer, error_headers
from headpond.http.sse import KEEP_ALIVE, frame
from headpond.tenancy.allowance import Allowance

_JSON = b"application/json"
_EVENT_STREAM: RawHeaders = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
GONE = 499
"""The status that is counted where nothing could be sent."""


class CallerGone(Exception):
    """The caller went away; nothing can be sent any more."""


class Reply:
    """One answer. Only what was not started can still become an error status.

    Attributes:
        request_id: Goes out with every answer.
        status: The status that was sent; 499 while, or if never, nothing was.
        accepted: What was admitted; from then on every answer names the bundle.
        allowance: The tenant's quotas; with them every answer tells what is left.
    """

    __slots__ = (
        "_busy",
        "_form",
        "_over",
        "_send",
        "accepted",
        "allowance",
        "request_id",
        "status",
    )

    def __init__(self, send: Send, request_id: str, form: ErrorForm | None = None) -> None:
        """Start with nothing sent.

        Args:
            send: ASGI's.
            request_id: Goes out with every answer.
            form: How errors look; OpenAI's envelope when absent.
        """
        self._send = send
        self._form = form
        self.request_id = request_id
        self._busy = False
        self._over = False
        self.accepted: Accepted | None = None
        self.allowance: Allowance | None = None
        self.status = GONE

    @property
    def started(self) -> bool:
        """Whether the status is on its way."""
        return self.status != GONE

    async def whole(
        self, status: int, body: bytes, headers: RawHeaders, media_type: bytes = _JSON
    ) -> None:
        """Send a complete answer."""
        described = [(b"content-type", media_type), (b"content-length", b"%d" % len(body))]
        await self._start(status, [*described, *headers])
        await self.last(body)

    async def stream(self, headers: RawHeaders) -> None:
        """Start a stream of server-sent events."""
        await self._start(200, [*_EVENT_STREAM, *headers])

    async def more(self, chunk: bytes) -> None:
        """Send one chunk of a stream."""
        await self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    async def last(self, chunk: bytes) -> None:
        """Send the last chunk."""
        self._over = True
        await self._put({"type": "http.response.body", "body": chunk})

    async def keep_alive(self) -> None:
        """Send a comment, unless a chunk is on its way or all were sent."""
        if not (self._busy or self._over):
            with suppress(CallerGone):
                await self.more(KEEP_ALIVE)

    async def fail(self, error: HeadpondError) -> None:
        """Send an error: as a status when nothing was sent yet, else as the last event."""
        if self._over:
            return
        with suppress(CallerGone):
            status, body = self._written(error)
            if self.started:
                await self.last(frame([SseEvent(data=body)]))
            else:
                await self.whole(status, body.encode(), error_headers(error))

    def _written(self, error: HeadpondError) -> tuple[int, str]:
        answer = error_answer(error, self._form)
        return answer.status, json.dumps(answer.body)

    async def _start(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        headers.append((b"x-request-id", self.request_id.encode()))
        if self.accepted is not None:
            headers.append((b"x-headpond-bundle", self.accepted.bundle.encode()))
        if self.allowance is not None:
            headers.extend(self.allowance.headers())
        await self._put({"type": "http.response.start", "status": status, "headers": headers})

    async def _put(self, message: dict[str, object]) -> None:
        self._busy = True
        try:
            await self._send(message)
        except OSError as error:
            raise CallerGone from error
        finally:
            self._busy = False
