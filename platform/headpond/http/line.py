"""The way out to one WebSocket: a bounded queue, and a close that never waits for long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from starlette.types import Send

from headpond.http.replay import wire_bytes

NORMAL, POLICY, TOO_BIG, FAULT, RESTART = 1000, 1008, 1009, 1011, 1012
"""Close codes of RFC 6455, and of IANA's registry beside it."""

_CLOSE_S = 2.0
"""A client that reads nothing for so long after the close is left."""

_MOST_REASON_BYTES = 123


class Line:
    """Messages on their way to one client; on the event loop's thread."""

    def __init__(self, send: Send, most_bytes: int) -> None:
        """Start with nothing to say.

        Args:
            send: ASGI's.
            most_bytes: A client for whom more waits than this reads too slowly.
        """
        self._send = send
        self._most_bytes = most_bytes
        self._unsent: deque[tuple[str, int]] = deque()
        self._unsent_bytes = 0
        self._news = asyncio.Event()
        self._close: tuple[int, str] | None = None
        self._sending: asyncio.Task[None] | None = None

    @property
    def closing(self) -> bool:
        """Whether it is being closed."""
        return self._close is not None

    def say(self, text: str) -> None:
        """Send a message when those before it are gone; closes the line of a slow reader."""
        if self._close is not None:
            return
        size = wire_bytes(text)
        self._unsent.append((text, size))
        self._unsent_bytes += size
        if self._unsent_bytes > self._most_bytes:
            self.cut(POLICY, "messages are read too slowly")
        self._news.set()

    def repeat(self, texts: Sequence[str]) -> None:
        """Send what was missed, which does not count as unread yet."""
        self._unsent.extend((text, 0) for text in texts)
        self._news.set()

    def close(self, code: int, reason: str) -> None:
        """Close after what waits was sent, as far as the client reads it."""
        if self._close is not None:
            return
        self._close = (code, _trimmed(reason))
        self._news.set()
        self._limit_close()

    def cut(self, code: int, reason: str) -> None:
        """Close without what waits."""
        self._unsent.clear()
        self.close(code, reason)

    async def pour(self) -> None:
        """Send all that is said until the line is closed, and close it.

        Raises:
            OSError: The client went away.
        """
        self._sending = asyncio.current_task()
        self._limit_close()
        while True:
            self._news.clear()
            while self._unsent:
                text, size = self._unsent.popleft()
                self._unsent_bytes -= size
                await self._send({"type": "websocket.send", "text": text})
            if self._close is not None:
                code, reason = self._close
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
                return
            await self._news.wait()

    def _limit_close(self) -> None:
        if self._close is not None and self._sending is not None:
            asyncio.get_running_loop().call_later(_CLOSE_S, self._sending.cancel)


def _trimmed(reason: str) -> str:
    """Return a reason as long as a close frame may carry."""
    return reason.encode()[:_MOST_REASON_BYTES].decode(errors="ignore")
