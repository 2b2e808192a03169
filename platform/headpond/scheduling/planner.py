"""Where plans are made: beside the event loop when they cost more than going there."""

from __future__ import annotations

import math
import time
from asyncio import Future, gather, get_running_loop, timeout
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headpond.admission.backlog import NO_WAIT, Class, Wait, told
from headpond.admission.drain import DrainRate
from headpond.admission.line import Waiting
from headpond.admission.queue import FairQueue
from headpond.call import Priority
from headpond.engine import may_wait
from headpond.errors import DeadlineExceeded, HeadpondError, Overloaded
from headpond.scheduling.intake import Intake
from headpond.scheduling.niceness import COMPUTING, give_way
from headpond.scheduling.sequence import Item, LiveCall

INLINE_MOST_S = 200e-6
"""CPU seconds up to which a call is planned on the event loop; a thread's round trip costs more."""

PART_S = 2e-3
"""CPU seconds that are planned in one go, so that a call of many items lets others between."""

UNKNOWN_S = 100e-6
"""What an item is taken to cost before the first was planned."""

MOST_AT_ONCE = 256
"""Calls that may wait for the planning threads."""

CALL_S = 50e-3
"""CPU seconds that make a call count as more than one, for its turn and for that bound."""

WAITING_MOST = 64
"""Plans that may wait, each in a thread of its own. An engine whose plans wait refuses more."""

_FORGET = 0.95

LATER = 1.15
"""A call that waits for its plan is refused at once when its wait is so much nearer to too long.

What is not quite expected comes meanwhile; a refusal when its turn has come would be a late one.
"""

Check = Callable[[Wait], None]
"""Refuses a call that would wait too long, behind this line of plans."""


@dataclass(slots=True, eq=False)
class _Part:
    """Some items of a call, to be planned in one go."""

    live: LiveCall
    start: int
    end: int
    weight: float
    check: Check
    planned: Future[list[Item]]


class Planner:
    """Plans calls on the event loop while plans are cheap, else in threads of its own.

    Never in the engine's thread: tokenizing a long prompt would hold up everybody's next
    step, and a refusal would wait for the step in progress. What is cheap is measured: the
    most CPU time that planning one item took lately, in calls that were planned in one go:
    a call of many items, long ones among them, does not send others to the threads. The first
    plan goes to a thread. Plans that may wait for others have threads apart.

    What costs more waits for a thread as calls wait for the engine: by tenant, class and work,
    and not for longer than makes sense. Where decoding is half of the work, most waits here.
    """

    def __init__(
        self,
        intake: Intake,
        clock: Callable[[], float],
        *,
        threads: int,
        tenant_weights: Mapping[str, float],
    ) -> None:
        """Plan with `intake`.

        Args:
            intake: Plans items, from several threads at once when there are several.
            clock: Monotonic seconds.
            threads: Of its own, for plans that only compute.
            tenant_weights: Shares of tenants that don't weigh 1.
        """
        self._intake = intake
        self._clock = clock
        self._threads = threads
        self._whole_s = self._part_s = math.inf
        self._drain = DrainRate()
        self._queue: FairQueue[_Part] = FairQueue(MOST_AT_ONCE, self._drain, tenant_weights)
        self._busy = 0
        self._accounted_s = 0.0
        self._held_up = 0
        self._pool = ThreadPoolExecutor(
            threads, "headpond-plan", initializer=give_way, initargs=(COMPUTING,)
        )
        self._waiting = ThreadPoolExecutor(WAITING_MOST, thread_name_prefix="headpond-wait")

    async def plan(self, live: LiveCall, check: Check) -> None:
        """Plan every item of a call.

        Args:
            live: The call.
            check: Asked before anything is planned that costs more than to refuse it.

        Raises:
            HeadpondError: An item is refused, or the call would wait too long.
            DeadlineExceeded: The call's time was over first.
        """
        count = len(live.call.items)
        waits = any(map(may_wait, live.call.items))
        if not waits and count * self._whole_s <= INLINE_MOST_S:
            live.items = self._plan(live, 0, count)
            return
        try:
            async with timeout(live.call.deadline_s):
                await (self._plan_held_up(live) if waits else self._plan_in_turn(live, check))
        except TimeoutError:
            raise DeadlineExceeded from None

    def wait(self, priority: Priority, tenant: str) -> Wait:
        """Return how long a tenant's next costly plan would wait."""
        calls = self._queue.calls(tenant, priority)
        return Wait(LATER * self._turn_s(priority, tenant), math.ceil(LATER * calls))

    @property
    def waits(self) -> Mapping[Class, Wait]:
        """How long plans wait, by line."""
        return told(self._queue.lines(), self._turn_s)

    def close(self) -> None:
        """Let the threads end after the plans they have."""
        self._pool.shutdown(wait=False)
        self._waiting.shutdown(wait=False)

    def _turn_s(self, priority: Priority, tenant: str) -> float:
        return self._drain.wait_s(self._queue.ahead(tenant, priority)) or 0.0

    async def _plan_held_up(self, live: LiveCall) -> None:
        """Plan a call that may wait for others, in a thread that it may keep."""
        if self._held_up >= MOST_AT_ONCE:
            raise Overloaded("too many requests wait to be read", retry_after_s=1.0)
        self._held_up += 1
        try:
            count = len(live.call.items)
            run = get_running_loop().run_in_executor
            live.items = await run(self._waiting, self._plan, live, 0, count)
        finally:
            self._held_up -= 1

    async def _plan_in_turn(self, live: LiveCall, check: Check) -> None:
        """Plan a call part by part, when it is its turn."""
        call = live.call
        check(self.wait(call.priority, call.tenant))
        spans = list(self._spans(len(call.items)))
        cost_s = len(call.items) * min(self._part_s, self._whole_s, CALL_S)
        weight = max(cost_s / CALL_S, 1.0) / len(spans)
        new_future = get_running_loop().create_future
        parts = [_Part(live, start, end, weight, check, new_future()) for start, end in spans]
        entries = [
            Waiting(
                tenant=call.tenant, priority=call.priority, weight=weight, content=part, flow=live
            )
            for part in parts
        ]
        self._queue.append(entries)
        self._start()
        try:
            planned = await gather(*(part.planned for part in parts))
        finally:
            for entry in entries:
                self._queue.withdraw(entry)
        live.items = [item for items in planned for item in items]

    def _start(self) -> None:
        """Plan what is next in turn, as long as a thread is free."""
        while self._busy < self._threads and (part := self._queue.take(_anything)) is not None:
            if part.planned.done():
                continue
            if not part.start:
                try:
                    part.check(NO_WAIT)
                except HeadpondError as refusal:
                    part.planned.set_exception(refusal)
                    continue
            self._run(part)

    def _run(self, part: _Part) -> None:
        now_s = self._clock()
        if not self._busy:
            self._accounted_s = now_s
        self._busy += 1
        run = get_running_loop().run_in_executor
        running = run(self._pool, self._plan, part.live, part.start, part.end)
        full = len(self._queue) > 0

        def over(ran: Future[list[Item]]) -> None:
            self._busy -= 1
            now_s = self._clock()
            self._drain.record(part.weight, now_s - self._accounted_s, full=full)
            self._accounted_s = now_s
            _pass_on(ran, part.planned)
            self._start()

        running.add_done_callback(over)

    def _spans(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a call, of about `PART_S` each."""
        each_s = UNKNOWN_S if math.isinf(self._part_s) else self._part_s
        size = max(int(PART_S / each_s), 1) if each_s > 0.0 else count
        for start in range(0, count, size):
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


def _anything(part: _Part) -> bool:
    del part
    return True


def _pass_on(ran: Future[list[Item]], planned: Future[list[Item]]) -> None:
    """Hand over what a thread came to, where somebody still waits for it."""
    if ran.cancelled():
        planned.cancel()
        return
    error = ran.exception()
    if planned.done():
        return
    if error is not None:
        planned.set_exception(error)
    else:
        planned.set_result(ran.result())


def _remembered(recent_s: float, spent_s: float) -> float:
    """Return the most that was spent lately, of what it was before and what is new."""
    return max(spent_s, 0.0 if math.isinf(recent_s) else recent_s * _FORGET)
