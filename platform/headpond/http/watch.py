"""A watch on the caller's connection while its call is being answered."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive

from headpond.call import Answer
from headpond.http.reply import CallerGone


class Watch:
    """Lets go of a call in the very moment its caller goes away.

    Used as a context around the serving of one call: when the caller goes, the answer is
    closed at once, the task that serves it is woken, and the context ends in `CallerGone`.
    """

    __slots__ = ("_answer", "_gone", "_over", "_receive", "_serving", "_watching")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._answer: Answer | None = None
        self._gone = False
        self._over = False

    async def __aenter__(self) -> Self:
        self._serving = asyncio.current_task()
        self._watching = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._gone:
            # The watching task is closing the answer; two closings must not meet.
            await asyncio.shield(self._watching)
            if self._serving is not None and self._serving.uncancel() == 0:
                raise CallerGone from error
            return
        self._watching.cancel()
        if self._answer is not None:
            await self._answer.close()

    def hold(self, answer: Answer) -> None:
        """Close this answer at the end, whatever the end is."""
        self._answer = answer

    def rest(self) -> None:
        """Stop watching: servers report a disconnect after every complete answer."""
        self._over = True

    async def _run(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._over or self._serving is None:
            return
        self._gone = True
        self._serving.cancel()
        if self._answer is not None:
            await self._answer.close()
