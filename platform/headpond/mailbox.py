"""A mailbox: events on their way to one reader, on the event loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from headpond.call import Event
from headpond.errors import HeadpondError, RequestCancelled

Sink = Callable[[Sequence[Event]], bool]
"""Takes a batch; False says that nobody will read it, nor anything after it."""


class Mailbox:
    """Keeps what comes for a slow reader, and wakes a waiting one.

    Its owner bounds what is put in: a call's outputs are at most its own extent.
    """

    __slots__ = ("_error", "_events", "_loop", "_overdue", "_sink", "_waiter", "over")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: list[Event] = []
        self._error: HeadpondError | None = None
        self._sink: Sink | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self.over = False

    def push(self, events: Sequence[Event]) -> None:
        """Hand over events; what comes after the end is dropped."""
        if self.over:
            return
        if self._sink is not None:
            if not self._sink(events):
                self.end((), RequestCancelled())
        else:
            self._events.extend(events)
            self._wake()

    def end(self, events: Sequence[Event], error: HeadpondError | None) -> None:
        """Hand over the last events, and the error that is raised after them, if any."""
        if self.over:
            return
        if events:
            self.push(events)
        self.over, self._error = True, error
        if self._overdue is not None:
            self._overdue.cancel()
        self._wake()

    def end_after(
        self, seconds: float, end: Callable[[HeadpondError], None], error: HeadpondError
    ) -> None:
        """Call `end` with `error` unless the end has come by then."""
        self._overdue = self._loop.call_later(seconds, end, error)

    @property
    def error(self) -> HeadpondError | None:
        """What the mailbox was ended with, if with an error."""
        return self._error

    def clear(self) -> None:
        """Drop what nobody will read."""
        self._events = []

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Iterate over the events; those that came together stay together.

        Raises:
            HeadpondError: What the mailbox was ended with.
        """
        while True:
            if self._events:
                events, self._events = self._events, []
                yield events
            elif self._error is not None:
                raise self._error
            elif self.over:
                return
            else:
                await self._news()

    async def pour(self, sink: Sink) -> None:
        """Give every batch to `sink` in the turn in which it comes; return at the end.

        Cheaper than `batches` by the waking of a task for each batch.

        Raises:
            HeadpondError: What the mailbox was ended with; `RequestCancelled` when the sink
                has no reader any more.
        """
        if self._events:
            events, self._events = self._events, []
            if not sink(events):
                raise RequestCancelled
        self._sink = sink
        while not self.over:
            await self._news()
        if self._error is not None:
            raise self._error

    async def _news(self) -> None:
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
