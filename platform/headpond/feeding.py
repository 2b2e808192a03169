"""Input of a routed call on its way from the router to the call's replica.

The router sends an input only when the one before was taken in by the call, so whoever
feeds at the router waits just as at the replica itself, but for one input.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headpond.call import Answer
from headpond.errors import HeadpondError

_REPORT_S = 0.25


@dataclass(frozen=True, slots=True)
class Input:
    """What is fed, and how many units that is."""

    payload: object
    units: int


@dataclass(frozen=True, slots=True)
class Fed:
    """How far a call is with its input.

    Attributes:
        inputs: How many it has taken in.
        waiting_units: How much of them the engine has not passed yet.
        error: Why it takes in no more.
    """

    inputs: int
    waiting_units: int
    error: HeadpondError | None = None


class FeedWindow:
    """The router's end: waits until the call has taken in what was sent."""

    def __init__(self) -> None:
        self._sent = 0
        self._under_way: deque[int] = deque()
        self._waiting_units = 0
        self._error: HeadpondError | None = None
        self._room = asyncio.Event()
        self._room.set()

    @property
    def waiting_units(self) -> int:
        """How much is under way or waits at the replica, as far as that has told."""
        return self._waiting_units + sum(self._under_way)

    async def enter(self, units: int) -> None:
        """Wait until the next input may be sent, and note that it is.

        Raises:
            HeadpondError: No more is taken in, for this reason.
        """
        while self._under_way and self._error is None:
            self._room.clear()
            await self._room.wait()
        if self._error is not None:
            raise self._error
        self._sent += 1
        self._under_way.append(units)

    def tell(self, fed: Fed) -> None:
        """Take in how far the call is."""
        self._waiting_units = fed.waiting_units
        while len(self._under_way) > self._sent - fed.inputs:
            self._under_way.popleft()
        if fed.error is not None:
            self.end(fed.error)
        self._room.set()

    def end(self, error: HeadpondError) -> None:
        """Let nothing more in, for this reason; the first one holds."""
        self._error = self._error or error
        self._room.set()


class Feeding:
    """The replica's end: hands inputs to the call one by one, and reports how far it is."""

    def __init__(self, answer: Answer, report: Callable[[Fed], bool]) -> None:
        """Start with nothing to feed.

        Args:
            answer: The call.
            report: Tells the router.
        """
        self._answer = answer
        self._report = report
        self._inputs: deque[Input] = deque()
        self._taken = self._told_units = 0
        self._came = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def take(self, given: Input) -> None:
        """Take an input, to feed it when those before it are fed."""
        self._inputs.append(given)
        self._came.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def lost(self) -> None:
        """Let the call go: its router is gone, so nobody feeds it or hears of it any more."""
        self.stop()
        self._task = asyncio.create_task(self._answer.close())

    def stop(self) -> None:
        """Feed no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                while self._inputs:
                    given = self._inputs.popleft()
                    await self._answer.feed(given.payload, given.units)
                    self._taken += 1
                    self._tell(self._answer.waiting_units)
                await self._idle()
        except HeadpondError as error:
            self._report(Fed(self._taken, self._answer.waiting_units, error))

    async def _idle(self) -> None:
        """Wait for input; report now and then while some of it has not been passed."""
        self._came.clear()
        while not self._came.is_set():
            waiting = self._answer.waiting_units
            if waiting != self._told_units:
                self._tell(waiting)
            try:
                async with asyncio.timeout(_REPORT_S if waiting else None):
                    await self._came.wait()
            except TimeoutError:
                continue

    def _tell(self, waiting_units: int) -> None:
        self._told_units = waiting_units
        self._report(Fed(self._taken, waiting_units))
