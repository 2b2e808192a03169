"""Where plans are made: beside the event loop when they cost more than going there."""

from __future__ import annotations

import math
import time
from asyncio import gather, get_running_loop, timeout
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from headpond.engine import may_wait
from headpond.errors import DeadlineExceeded, Overloaded
from headpond.scheduling.giving_way import give_way
from headpond.scheduling.intake import Intake
from headpond.scheduling.sequence import Item, LiveCall
from headpond.scheduling.standing_aside import is_waited_for

INLINE_MOST_S = 200e-6
"""CPU seconds up to which a call is planned on the event loop; a thread's round trip costs more."""

PART_S = 2e-3
"""CPU seconds that are planned in one go, so that a call of many items lets others between."""

MOST_AT_ONCE = 256
"""Calls that may wait for the planning threads; their work is not known yet."""

WAITING_MOST = 64
"""Plans that may wait, each in a thread of its own. An engine whose plans wait refuses more."""

_FORGET = 0.95


class Planner:
    """Plans calls on the event loop while plans are cheap, else in threads of its own.

    Never in the engine's thread: tokenizing a long prompt would hold up everybody's next
    step, and a refusal would wait for the step in progress. What is cheap is measured: the
    most CPU time that planning one item took lately, in calls that were planned in one go:
    a call of many items, long ones among them, does not send others to the threads. The first
    plan goes to a thread. Plans that may wait for others have threads apart, and those of
    batch work one that gives way.
    """

    def __init__(self, intake: Intake, threads: int = 1) -> None:
        """Plan with `intake`.

        Args:
            intake: Plans items, from several threads at once when there are several.
            threads: Of its own, for plans that only compute.
        """
        self._intake = intake
        self._threads = threads
        self._whole_s = self._part_s = math.inf
        self._pending = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headpond-plan")
        self._aside = ThreadPoolExecutor(
            1, thread_name_prefix="headpond-aside", initializer=give_way
        )
        self._waiting = ThreadPoolExecutor(WAITING_MOST, thread_name_prefix="headpond-wait")

    async def plan(self, live: LiveCall) -> None:
        """Plan every item of a call.

        Raises:
            HeadpondError: An item is refused, or too many calls wait to be planned.
            DeadlineExceeded: The call's time was over first.
        """
        count = len(live.call.items)
        waits = any(map(may_wait, live.call.items))
        if not waits and count * self._whole_s <= INLINE_MOST_S:
            live.items = self._plan(live, 0, count)
            return
        if self._pending >= MOST_AT_ONCE:
            raise Overloaded("too many requests wait to be read", retry_after_s=1.0)
        self._pending += 1
        try:
            async with timeout(live.call.deadline_s):
                if waits:
                    await self._plan_in_threads(live, count, self._waiting, self._threads)
                elif is_waited_for(live):
                    await self._plan_in_threads(live, count, self._pool, self._threads)
                else:
                    await self._plan_in_threads(live, count, self._aside, 1)
        except TimeoutError:
            raise DeadlineExceeded from None
        finally:
            self._pending -= 1

    def close(self) -> None:
        """Let the threads end after the plans they have."""
        self._pool.shutdown(wait=False)
        self._aside.shutdown(wait=False)
        self._waiting.shutdown(wait=False)

    async def _plan_in_threads(
        self, live: LiveCall, count: int, pool: ThreadPoolExecutor, threads: int
    ) -> None:
        """Plan a call part by part, each thread one at a time."""
        run = get_running_loop().run_in_executor
        done = 0
        while done < count:
            parts = list(self._parts(done, count, threads))
            planned = await gather(
                *(run(pool, self._plan, live, start, end) for start, end in parts)
            )
            live.items += [item for items in planned for item in items]
            done = parts[-1][1]

    def _parts(self, done: int, count: int, threads: int) -> Iterator[tuple[int, int]]:
        """Yield the next part of a call for each thread, of about `PART_S`."""
        size = max(int(PART_S / self._part_s), 1) if self._part_s > 0.0 else count
        for start in range(done, min(done + size * threads, count), size):
            yield start, min(start + size, count)

    def _plan(self, live: LiveCall, start: int, end: int) -> list[Item]:
        began = time.thread_time()
        try:
            return self._intake.plan(live, start, end)
        finally:
            spent = (time.thread_time() - began) / max(end - start, 1)
            self._part_s = _remembered(self._part_s, spent)
            if end - start == len(live.call.items):
                self._whole_s = _remembered(self._whole_s, spent)


def _remembered(recent_s: float, spent_s: float) -> float:
    """Return the most that was spent lately, of what it was before and what is new."""
    return max(spent_s, 0.0 if math.isinf(recent_s) else recent_s * _FORGET)
