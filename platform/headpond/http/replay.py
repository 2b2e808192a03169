"""What a session said lately, for a client that comes back and has missed some of it."""

from __future__ import annotations

from collections import deque

from headpond.errors import InvalidRequest
from headpond.http.errors import SessionNotFound


def wire_bytes(text: str) -> int:
    """Return how long a text is in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


class Replay:
    """The newest numbered messages of a session, up to so many bytes."""

    def __init__(self, most_bytes: int) -> None:
        """Start with nothing said.

        Args:
            most_bytes: Beyond it the oldest messages are forgotten; the newest never is.
        """
        self._most_bytes = most_bytes
        self._kept: deque[tuple[int, str, int]] = deque()
        self._kept_bytes = 0
        self._last = 0
        self._forgotten = 0

    def keep(self, number: int, text: str) -> None:
        """Keep a message that is said now.

        Raises:
            ValueError: Its number is not above that of the message before.
        """
        if number <= self._last:
            raise ValueError(f"message {number} was said after message {self._last}")
        self._last = number
        size = wire_bytes(text)
        self._kept.append((number, text, size))
        self._kept_bytes += size
        while self._kept_bytes > self._most_bytes and len(self._kept) > 1:
            self._forgotten, _, size = self._kept.popleft()
            self._kept_bytes -= size

    def after(self, number: int) -> list[str]:
        """Return every message that was said after the one of this number, in order.

        Raises:
            InvalidRequest: Nothing of that number was said.
            SessionNotFound: Some of them are not kept any more.
        """
        if number > self._last:
            raise InvalidRequest(
                f"The last event of the session is {self._last}.", param="last_event"
            )
        if number < self._forgotten:
            raise SessionNotFound("The session has said more since than it can say again.")
        return [text for at, text, _ in self._kept if at > number]
