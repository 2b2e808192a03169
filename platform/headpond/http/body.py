"""The body of a request, read up to a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Receive

from headpond.errors import DeadlineExceeded, InvalidRequest, PayloadTooLarge
from headpond.http.headers import Headers
from headpond.http.reply import CallerGone

_MAX_DIGITS = 15
_PART_TIMEOUT_S = 30.0
"""A caller may be slow, but not silent, while it sends its body."""


async def read_body(receive: Receive, headers: Headers, limit_bytes: int) -> bytes:
    """Return the whole body; one that is too large is refused before it is held.

    Raises:
        PayloadTooLarge: It is longer than `limit_bytes`, or says so.
        InvalidRequest: It is empty, or compressed.
        DeadlineExceeded: Nothing more of it came for half a minute.
        CallerGone: The caller went away while sending it.
    """
    parts = [part async for part in body_parts(receive, headers, limit_bytes)]
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    if not body:
        raise InvalidRequest("The body is empty; send a JSON object.")
    return body


async def body_parts(receive: Receive, headers: Headers, limit_bytes: int) -> AsyncGenerator[bytes]:
    """Yield the parts of a body as they come, up to a bound; see `read_body`."""
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
        raise InvalidRequest(
            "Compressed bodies are not taken; send it plain.", param="content-encoding"
        )
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > _MAX_DIGITS or int(declared) > limit_bytes):
        raise _too_large(limit_bytes)
    left_bytes = limit_bytes
    more = True
    while more:
        try:
            async with asyncio.timeout(_PART_TIMEOUT_S):
                message = await receive()
        except TimeoutError:
            raise DeadlineExceeded("The request body did not arrive in time.") from None
        if message["type"] == "http.disconnect":
            raise CallerGone
        part: bytes = message.get("body", b"")
        left_bytes -= len(part)
        if left_bytes < 0:
            raise _too_large(limit_bytes)
        more = message.get("more_body", False)
        yield part


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request body is larger than {limit_bytes} bytes.")
