"""The reader's end of a call in a loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import AsyncIterator, Callable, Sequence

from headpond.call import Accepted, Event
from headpond.errors import HeadpondError, RequestCancelled


class LoopAnswer:
    """A call in progress; everything here happens on the event loop's thread.

    Outputs wait here for a slow reader, at most as many as the call's own extent, while
    the engine goes on and frees the call's state.
    """

    __slots__ = (
        "_accepted",
        "_cancel",
        "_error",
        "_events",
        "_loop",
        "_over",
        "_overdue",
        "_waiter",
    )

    def __init__(
        self, accepted: Accepted, loop: AbstractEventLoop, cancel: Callable[[HeadpondError], None]
    ) -> None:
        """Start with nothing delivered.

        Args:
            accepted: What was admitted.
            loop: The event loop of the reader.
            cancel: Tells the scheduler that the reader went away, and why.
        """
        self._accepted = accepted
        self._cancel = cancel
        self._loop = loop
        self._events: list[Event] = []
        self._error: HeadpondError | None = None
        self._over = False
        self._waiter: Future[None] | None = None
        self._overdue: TimerHandle | None = None

    @property
    def accepted(self) -> Accepted:
        """What was admitted, and on which bundle."""
        return self._accepted

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Iterate over the events; those of one engine step come together.

        Raises:
            HeadpondError: The call as a whole failed (deadline, lost worker), or was closed.
        """
        while True:
            if self._events:
                events, self._events = self._events, []
                yield events
            elif self._error is not None:
                raise self._error
            elif self._over:
                return
            else:
                self._waiter = self._loop.create_future()
                await self._waiter

    async def close(self) -> None:
        """Let go of the call; cancels it when it is not over. Safe to call twice."""
        self._events = []
        if not self._over:
            self._let_go(RequestCancelled())

    def fail_after(self, seconds: float, error: HeadpondError) -> None:
        """Raise `error` to the reader when the call is not over by then."""
        self._overdue = self._loop.call_later(seconds, self._let_go, error)

    def push(self, events: Sequence[Event]) -> None:
        """Hand over events; what comes after the end is dropped."""
        if not self._over:
            self._events.extend(events)
            self._wake()

    def end(self, events: Sequence[Event], error: HeadpondError | None) -> None:
        """Hand over the last events, and the error that is raised after them, if any."""
        if self._over:
            return
        self._events.extend(events)
        self._over, self._error = True, error
        if self._overdue is not None:
            self._overdue.cancel()
        self._wake()

    def _let_go(self, error: HeadpondError) -> None:
        self.end((), error)
        self._cancel(error)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
