"""Where plans are made: beside the event loop when they cost more than going there."""

from __future__ import annotations

import math
import time
from asyncio import get_running_loop
from concurrent.futures import ThreadPoolExecutor

from headpond.errors import Overloaded
from headpond.scheduling.intake import Intake
from headpond.scheduling.sequence import LiveCall

INLINE_MOST_S = 50e-6
"""CPU seconds up to which a plan runs on the event loop; a thread's round trip costs more."""

MOST_AT_ONCE = 256
"""Calls that may wait for the planning thread; their work is not known yet."""

_FORGET = 0.95


class Planner:
    """Plans calls on the event loop while plans are cheap, else in one thread of its own.

    Never in the engine's thread: tokenizing a long prompt would hold up everybody's next
    step, and a refusal would wait for the step in progress. What is cheap is measured: the
    most CPU time a plan took lately. The first plan goes to the thread.
    """

    def __init__(self, intake: Intake) -> None:
        """Plan with `intake`."""
        self._intake = intake
        self._recent_s = math.inf
        self._pending = 0
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headpond-plan")

    async def plan(self, live: LiveCall) -> None:
        """Plan every item of a call.

        Raises:
            HeadpondError: An item is refused, or too many calls wait to be planned.
        """
        if self._recent_s <= INLINE_MOST_S:
            self._plan(live)
            return
        if self._pending >= MOST_AT_ONCE:
            raise Overloaded("too many requests wait to be read", retry_after_s=1.0)
        self._pending += 1
        try:
            await get_running_loop().run_in_executor(self._pool, self._plan, live)
        finally:
            self._pending -= 1

    def close(self) -> None:
        """Let the thread end after the plans it has."""
        self._pool.shutdown(wait=False)

    def _plan(self, live: LiveCall) -> None:
        began = time.thread_time()
        try:
            self._intake.plan(live)
        finally:
            spent = time.thread_time() - began
            remembered = 0.0 if math.isinf(self._recent_s) else self._recent_s * _FORGET
            self._recent_s = max(spent, remembered)
