"""The reader's end of a call in a loop."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable, Sequence

from headpond.call import Accepted, Event
from headpond.errors import HeadpondError, RequestCancelled
from headpond.last_word import LastWord
from headpond.mailbox import Mailbox, Sink
from headpond.scheduling.sequence import LiveCall
from headpond.scheduling.worker import Worker
from headpond.units import Work

_LOOK_S = 0.01


class LoopAnswer:
    """A call in progress; everything here happens on the event loop's thread.

    Outputs wait here for a slow reader, at most as many as the call's own extent, while
    the engine goes on and frees the call's state.
    """

    __slots__ = ("_accepted", "_ahead", "_last_word", "_live", "_mailbox", "_over", "_worker")

    def __init__(
        self, live: LiveCall, loop: AbstractEventLoop, worker: Worker, ahead: int = 0
    ) -> None:
        """Start with nothing delivered.

        Args:
            live: The call.
            loop: The event loop of the reader.
            worker: Is told when the reader went away and why, and gets what is fed.
            ahead: Units of input that may wait.
        """
        self._accepted = live.accepted
        self._live = live
        self._worker = worker
        self._ahead = ahead
        self._mailbox = Mailbox(loop)
        self._over = False
        self._last_word = LastWord()

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

    async def feed(self, payload: object, units: int) -> None:
        """Hand more input to the call's one fed item; waits while too much waits already.

        Raises:
            HeadpondError: The call is over, or not fed, or gets more than it may.
        """
        # The engine says nothing when it has passed input that gave no output, and nobody
        # else needs to know; so it is looked at, at the pace of steps.
        while self.waiting_units > max(self._ahead - units, 0) and not self._over:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        if self._over:
            raise self._mailbox.error or RequestCancelled()
        self._worker.feed(self._live, payload, units)

    @property
    def waiting_units(self) -> int:
        """How many units of what was fed the engine has not passed yet, and could."""
        item = self._live.fed
        if item is None or item.inlet is None or item.idle:
            return 0  # an idle one needs more input to go on
        return item.inlet.fed - item.held

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

    def when_over(self, told: Callable[[Work], None]) -> None:
        """Have `told` called once with what the call came to, when all of it is released."""
        self._last_word.tell(told)

    def end(self, events: Sequence[Event], error: HeadpondError | None) -> None:
        """Hand over the last events, and the error that is raised after them, if any.

        Every item is over by then, also of a call that was let go of.
        """
        self._over = True
        self._mailbox.end(events, error)
        self._last_word.know(self._live.work())

    def _let_go(self, error: HeadpondError) -> None:
        self._over = True
        self._mailbox.end((), error)
        self._worker.cancel(self._live, error)
