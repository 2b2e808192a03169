"""What callers ask for in headers, beside the body."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from headpond.call import Priority
from headpond.errors import DeadlineExceeded, InvalidRequest

Headers = Mapping[bytes, bytes]
"""By lower-case name, as ASGI has them."""

DEADLINE = "x-headpond-deadline-ms"
PRIORITY = "x-headpond-priority"
SESSION = "x-headpond-session"

IDENTIFIER = r"^[A-Za-z0-9._:/+=@-]{1,128}$"
"""What a request's or a session's identifier looks like."""

_IDENTIFIER = re.compile(IDENTIFIER.encode())
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_DIGITS = re.compile(rb"-?[0-9]{1,15}")
_PRIORITIES = {priority.name.lower().encode(): priority for priority in Priority}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the headers ask of one call.

    Attributes:
        priority: Its class in the waiting queue.
        limit_s: Seconds the whole request may take.
        session: What the call is part of, or None.
    """

    priority: Priority
    limit_s: float
    session: str | None = None

    @classmethod
    def read(cls, headers: Headers, longest_s: float) -> Self:
        """Read the headers; a request takes at most `longest_s`, whatever it asks.

        Raises:
            InvalidRequest: A header is not what it must be; names it.
            DeadlineExceeded: There is no time left.
        """
        return cls(_priority(headers), _limit_s(headers, longest_s), _session(headers))


def request_id(headers: Headers) -> str:
    """Return the caller's request identifier, or a new one when it has none of use."""
    given = headers.get(b"x-request-id")
    if given is not None and _IDENTIFIER.fullmatch(given):
        return given.decode()
    return os.urandom(16).hex()


def _priority(headers: Headers) -> Priority:
    given = headers.get(PRIORITY.encode())
    if given is None:
        return Priority.NORMAL
    known = _PRIORITIES.get(given.strip().lower())
    if known is None:
        raise InvalidRequest(f"{PRIORITY} must be urgent, normal or batch.", param=PRIORITY)
    return known


def _limit_s(headers: Headers, longest_s: float) -> float:
    given = headers.get(DEADLINE.encode())
    if given is None:
        return longest_s
    if not _DIGITS.fullmatch(given):
        raise InvalidRequest(f"{DEADLINE} must be a whole number of milliseconds.", param=DEADLINE)
    left_ms = int(given)
    if left_ms <= 0:
        raise DeadlineExceeded
    return min(left_ms / 1000, longest_s)


def traceparent(headers: Headers) -> str | None:
    """Return the caller's trace context; one that is not well-formed is none (W3C)."""
    given = headers.get(b"traceparent")
    return given.decode() if given is not None and _TRACEPARENT.fullmatch(given) else None


def _session(headers: Headers) -> str | None:
    given = headers.get(SESSION.encode())
    if given is None:
        return None
    if not _IDENTIFIER.fullmatch(given):
        raise InvalidRequest(
            f"{SESSION} must be 1 to 128 letters, digits or any of ._:/+=@-", param=SESSION
        )
    return given.decode()
