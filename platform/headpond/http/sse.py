"""Server-sent events: framing, comments, and signs of life while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from headpond.dialect import SseEvent


def frame(events: Sequence[SseEvent]) -> bytes:
    """Return events as they go over the wire (WHATWG HTML, section 9.2)."""
    return "".join(
        [
            f"data: {event.data}\n\n"
            if event.name is None
            else f"event: {event.name}\ndata: {event.data}\n\n"
            for event in events
        ]
    ).encode()


def comment(text: str) -> bytes:
    """Return a comment, which clients skip."""
    return f": {text}\n\n".encode()


KEEP_ALIVE = comment("keep-alive")


class Pulse:
    """Calls `beat` every so often, as long as nothing else was sent for that long.

    A timer is all it costs; only a stream that really is idle gets a task.
    """

    __slots__ = ("_beat", "_beating", "_every_s", "_last_s", "_loop", "_timer")

    def __init__(self, beat: Callable[[], Awaitable[None]], every_s: float) -> None:
        self._beat = beat
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._last_s = self._loop.time()
        self._beating: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(every_s, self._due)

    def defer(self) -> None:
        """Note that something was sent just now."""
        self._last_s = self._loop.time()

    def stop(self) -> None:
        """Be silent from now on."""
        self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()

    def _due(self) -> None:
        now_s = self._loop.time()
        idle_s = now_s - self._last_s
        if idle_s >= self._every_s and (self._beating is None or self._beating.done()):
            self._beating = asyncio.ensure_future(self._beat())
            self._last_s, idle_s = now_s, 0.0
        self._timer = self._loop.call_later(max(self._every_s - idle_s, 0.001), self._due)
