"""The body of a request, read up to a bound."""

from __future__ import annotations

from starlette.types import Receive

from headpond.errors import InvalidRequest, PayloadTooLarge
from headpond.http.headers import Headers
from headpond.http.reply import CallerGone

_MAX_DIGITS = 15


async def read_body(receive: Receive, headers: Headers, limit_bytes: int) -> bytes:
    """Return the whole body; one that is too large is refused before it is held.

    Raises:
        PayloadTooLarge: It is longer than `limit_bytes`, or says so.
        InvalidRequest: It is empty.
        CallerGone: The caller went away while sending it.
    """
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > _MAX_DIGITS or int(declared) > limit_bytes):
        raise _too_large(limit_bytes)
    parts: list[bytes] = []
    left_bytes = limit_bytes
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        part: bytes = message.get("body", b"")
        left_bytes -= len(part)
        if left_bytes < 0:
            raise _too_large(limit_bytes)
        parts.append(part)
        more = message.get("more_body", False)
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    if not body:
        raise InvalidRequest("The body is empty; send a JSON object.")
    return body


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request body is larger than {limit_bytes} bytes.")
