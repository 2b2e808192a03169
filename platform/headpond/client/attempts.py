"""The attempts of one call: how long each may take, and whether there is another."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import uniform

import httpx2

from headpond.client.config import ClientConfig
from headpond.client.errors import ConnectionFailed, ConnectionTimedOut, ResponseInvalid
from headpond.errors import DeadlineExceeded, HeadpondError

CONNECT_S = 5.0
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 8.0
MOST_PATIENCE_S = 120.0
"""A server that asks for a longer wait gets no further attempt."""
GRACE_S = 1.0
"""Beyond the deadline, for the server's own word about it."""


class Attempts:
    """Counts the failures of one call and watches its deadline.

    Each attempt tells the server the time that is left. What retries the call, stamina,
    asks `wait_s` after each failure.
    """

    def __init__(
        self, config: ClientConfig, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start the call's clock (seconds, monotonic)."""
        self._timeout_s = config.timeout_s
        self._clock = clock
        self._ends_s = None if config.deadline_s is None else clock() + config.deadline_s
        self._failures = 0

    def headers(self) -> dict[str, str]:
        """Return the headers that tell the server how much time is left, in ms.

        Raises:
            DeadlineExceeded: None is left.
        """
        left_s = self._left_s()
        if left_s is None:
            return {}
        if left_s <= 0:
            raise DeadlineExceeded
        return {"x-headpond-deadline-ms": str(max(1, round(left_s * 1000)))}

    def timeout(self) -> httpx2.Timeout:
        """Return how long the next attempt may wait for bytes."""
        left_s = self._left_s()
        wait_s = self._timeout_s
        if left_s is not None:
            wait_s = min(wait_s, max(0.0, left_s) + GRACE_S)
        return httpx2.Timeout(wait_s, connect=min(wait_s, CONNECT_S))

    def failure(self, error: httpx2.RequestError) -> HeadpondError:
        """Return the error that a broken or silent connection means."""
        if isinstance(error, httpx2.DecodingError):
            return ResponseInvalid()
        if not isinstance(error, httpx2.TimeoutException):
            return ConnectionFailed()
        left_s = self._left_s()
        return DeadlineExceeded() if left_s is not None and left_s <= 0 else ConnectionTimedOut()

    def wait_s(self, error: Exception) -> float | bool:
        """Return the seconds until the next attempt; False when there is to be none."""
        wait_s = self._wanted_wait_s(error)
        self._failures += 1
        left_s = self._left_s()
        if wait_s is None or (left_s is not None and wait_s >= left_s):
            return False
        return wait_s

    def _wanted_wait_s(self, error: Exception) -> float | None:
        if not isinstance(error, HeadpondError):
            return None
        allowed = error.retryable if error.received is None else error.received.should_retry
        if not allowed:
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= MOST_PATIENCE_S else None
        longest_s = min(FIRST_WAIT_S * 2.0 ** min(self._failures, 10), LONGEST_WAIT_S)
        return uniform(0.75, 1.0) * longest_s  # noqa: S311 - spreads clients, hides nothing

    def _left_s(self) -> float | None:
        return None if self._ends_s is None else self._ends_s - self._clock()
