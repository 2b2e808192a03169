"""Where plans are made: beside the event loop when they cost more than going there."""

from __future__ import annotations

import math
import time
from asyncio import gather, get_running_loop
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from headpond.errors import Overloaded
from headpond.scheduling.intake import Intake
from headpond.scheduling.sequence import Item, LiveCall

INLINE_MOST_S = 200e-6
"""CPU seconds up to which a call is planned on the event loop; a thread's round trip costs more."""

PART_S = 2e-3
"""CPU seconds that are planned in one go, so that a call of many items lets others between."""

MOST_AT_ONCE = 256
"""Calls that may wait for the planning threads; their work is not known yet."""

_FORGET = 0.95


class Planner:
    """Plans calls on the event loop while plans are cheap, else in threads of its own.

    Never in the engine's thread: tokenizing a long prompt would hold up everybody's next
    step, and a refusal would wait for the step in progress. What is cheap is measured: the
    most CPU time that planning one item took lately. The first plan goes to a thread.
    """

    def __init__(self, intake: Intake, threads: int = 1) -> None:
        """Plan with `intake`.

        Args:
            intake: Plans items, from several threads at once when there are several.
            threads: Of its own.
        """
        self._intake = intake
        self._threads = threads
        self._recent_s = math.inf
        self._pending = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headpond-plan")

    async def plan(self, live: LiveCall) -> None:
        """Plan every item of a call.

        Raises:
            HeadpondError: An item is refused, or too many calls wait to be planned.
        """
        count = len(live.call.items)
        if count * self._recent_s <= INLINE_MOST_S:
            live.items = self._plan(live, 0, count)
            return
        if self._pending >= MOST_AT_ONCE:
            raise Overloaded("too many requests wait to be read", retry_after_s=1.0)
        self._pending += 1
        try:
            await self._plan_in_threads(live, count)
        finally:
            self._pending -= 1

    def close(self) -> None:
        """Let the threads end after the plans they have."""
        self._pool.shutdown(wait=False)

    async def _plan_in_threads(self, live: LiveCall, count: int) -> None:
        """Plan a call part by part, each thread one at a time."""
        run = get_running_loop().run_in_executor
        done = 0
        while done < count:
            parts = list(self._parts(done, count))
            planned = await gather(
                *(run(self._pool, self._plan, live, start, end) for start, end in parts)
            )
            live.items += [item for items in planned for item in items]
            done = parts[-1][1]

    def _parts(self, done: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield the next part of a call for each thread, of about `PART_S`."""
        size = max(int(PART_S / self._recent_s), 1) if self._recent_s > 0.0 else count
        for start in range(done, min(done + size * self._threads, count), size):
            yield start, min(start + size, count)

    def _plan(self, live: LiveCall, start: int, end: int) -> list[Item]:
        began = time.thread_time()
        try:
            return self._intake.plan(live, start, end)
        finally:
            spent = (time.thread_time() - began) / max(end - start, 1)
            remembered = 0.0 if math.isinf(self._recent_s) else self._recent_s * _FORGET
            self._recent_s = max(spent, remembered)
