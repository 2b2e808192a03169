"""The reader's end of a call in a loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable, Sequence

from headpond.call import Accepted, Event
from headpond.errors import HeadpondError, RequestCancelled
from headpond.mailbox import Mailbox, Sink


class LoopAnswer:
    """A call in progress; everything here happens on the event loop's thread.

    Outputs wait here for a slow reader, at most as many as the call's own extent, while
    the engine goes on and frees the call's state.
    """

    __slots__ = ("_accepted", "_cancel", "_mailbox", "_over")

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
        self._mailbox = Mailbox(loop)
        self._over = False

    @property
    def accepted(self) -> Accepted:
        """What was admitted, and on which bundle."""
        return self._accepted

    def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Iterate over the events; those of one engine step come together.

        Raises:
            HeadpondError: The call as a whole failed (deadline, lost worker), or was closed.
        """
        return self._mailbox.batches()

    async def pour(self, sink: Sink) -> None:
        """Give the events of each step to `sink` at once; return when the call is over.

        Raises:
            HeadpondError: The call as a whole failed (deadline, lost worker), or was closed.
        """
        await self._mailbox.pour(sink)

    async def close(self) -> None:
        """Let go of the call; cancels it when it is not over. Safe to call twice."""
        self._mailbox.clear()
        if not self._over:
            self._let_go(RequestCancelled())

    def fail_after(self, seconds: float, error: HeadpondError) -> None:
        """Raise `error` to the reader when the call is not over by then."""
        self._mailbox.end_after(seconds, self._let_go, error)

    def push(self, events: Sequence[Event]) -> None:
        """Hand over the events of a step."""
        self._mailbox.push(events)

    def end(self, events: Sequence[Event], error: HeadpondError | None) -> None:
        """Hand over the last events, and the error that is raised after them, if any."""
        self._over = True
        self._mailbox.end(events, error)

    def _let_go(self, error: HeadpondError) -> None:
        self._over = True
        self._mailbox.end((), error)
        self._cancel(error)
