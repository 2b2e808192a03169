"""Errors as clients meet them: the server's own classes, and what only clients see.

HeadpondError
├── BatchFailed                 the server could not run a batch
├── ConnectionFailed            the server could not be reached
│   └── ConnectionTimedOut      nothing came for `timeout_s`
└── ResponseInvalid             the answer is not what the API promises
    └── StreamTruncated         a stream ended before its end was said
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache

import httpx2
from pydantic import BaseModel, ValidationError

import headpond.errors as shared
from headpond.errors import (
    DeadlineExceeded,
    HeadpondError,
    InvalidRequest,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    PermissionDenied,
    RateLimited,
    Received,
    RequestCancelled,
    WorkerLost,
)


class BatchFailed(HeadpondError):
    """The batch failed: it has no results."""

    code = "batch_failed"


class ConnectionFailed(HeadpondError):
    """The server could not be reached, or the connection broke before it answered."""

    code = "connection_failed"
    retryable = True


class ConnectionTimedOut(ConnectionFailed):
    """The server did not answer in time."""

    code = "connection_timed_out"


class ResponseInvalid(HeadpondError):
    """The server's answer is not what the API promises."""

    code = "response_invalid"


class StreamTruncated(ResponseInvalid):
    """The stream ended before it was complete."""

    code = "stream_truncated"


@cache
def _by_code() -> Mapping[str | None, type[HeadpondError]]:
    """Return the server's errors that say a code of their own."""
    # Most programs meet none of them.
    from headpond.http import errors as of_http  # noqa: PLC0415
    from headpond.jobs import errors as of_jobs  # noqa: PLC0415

    modules = {module.__name__ for module in (shared, of_http, of_jobs)}
    found: dict[str | None, type[HeadpondError]] = {}
    classes: list[type[HeadpondError]] = [HeadpondError]
    for cls in classes:
        classes += [each for each in cls.__subclasses__() if each.__module__ in modules]
        if "code" in vars(cls) and cls.__init__ is HeadpondError.__init__:
            found[cls.code] = cls
    found.pop(None, None)
    return found


_BY_STATUS: Mapping[int, type[HeadpondError]] = {
    401: shared.AuthenticationFailed,
    403: PermissionDenied,
    404: NotFound,
    408: DeadlineExceeded,
    413: PayloadTooLarge,
    429: RateLimited,
    499: RequestCancelled,
    502: WorkerLost,
    503: Overloaded,
}
_BY_KIND: Mapping[str | None, type[HeadpondError]] = {
    InvalidRequest.kind: InvalidRequest,
    RateLimited.kind: RateLimited,
    DeadlineExceeded.kind: DeadlineExceeded,
}
_RETRIED = frozenset({408, 409, 429})


class _Error(BaseModel):
    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: str | None = None
    retry_after_ms: int | None = None


class _Envelope(BaseModel):
    error: _Error


def error_of(response: httpx2.Response) -> HeadpondError:
    """Return the error that an answer without success stands for; its body is read."""
    status = response.status_code
    told = _read(response.text)
    if told is None:
        # Some proxy's own page: its text is no message for the caller.
        told = _Error(message=f"The server answered with HTTP status {status}.")
    cls = _by_code().get(told.code) or _BY_STATUS.get(status)
    if cls is None:
        cls = InvalidRequest if 400 <= status < 500 else HeadpondError
    error = cls(told.message, param=told.param, retry_after_s=_retry_after_s(response.headers))
    error.received = Received(
        status=status,
        request_id=response.headers.get("x-request-id"),
        body=response.text,
        should_retry=told.code != DeadlineExceeded.code and _should_retry(response),
    )
    return error


def error_in(data: str, response: httpx2.Response | None = None) -> HeadpondError | None:
    """Return the error in the data of an event; None if it holds none.

    Args:
        data: JSON.
        response: The answer that the event came in; None of a WebSocket's messages.
    """
    told = _read(data)
    if told is None:
        return None
    cls = _by_code().get(told.code) or _BY_KIND.get(told.type) or HeadpondError
    wait_ms = told.retry_after_ms
    wait_s = None if wait_ms is None else wait_ms / 1000
    error = cls(told.message, param=told.param, retry_after_s=wait_s)
    error.received = Received(
        status=101 if response is None else response.status_code,
        request_id=None if response is None else response.headers.get("x-request-id"),
        body=data,
        should_retry=False,
    )
    return error


def _read(body: str) -> _Error | None:
    try:
        return _Envelope.model_validate_json(body).error
    except ValidationError:
        return None


def _should_retry(response: httpx2.Response) -> bool:
    told = response.headers.get("x-should-retry")
    if told in {"true", "false"}:
        return told == "true"
    return response.status_code in _RETRIED or response.status_code >= 500


def _retry_after_s(headers: httpx2.Headers) -> float | None:
    """Return the wait the server asks for: milliseconds first, then seconds or a date."""
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        wait_s = _number(headers.get(name)) / per_second
        if math.isfinite(wait_s) and wait_s >= 0:
            return wait_s
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
