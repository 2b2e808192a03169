"""The loop of formed batches with its real threads and a real event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headpond.call import Call, Ended, Event, Output, Priority
from headpond.engine import Plan
from headpond.errors import DeadlineExceeded, InvalidRequest, NotReady, WorkerLost
from headpond.scheduling.answer import LoopAnswer
from headpond.scheduling.loop import Loop, loop_for
from headpond.telemetry.report import CallReport
from headpond.testing.formed import MeasuringEngine, MeasuringItem, measuring_record

RECORD = measuring_record(queue_limit=1_000_000)


class Gate:
    """Holds batches back, and remembers the threads they ran on."""

    def __init__(self, batches: int = 10_000) -> None:
        self.may_run = threading.Semaphore(batches)
        self.running = 0
        self.most_at_once = 0
        self.threads: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            self.threads.add(threading.current_thread().name)
        self.may_run.acquire()
        with self._lock:
            self.running -= 1


class ThreadsEngine(MeasuringEngine):
    """Remembers the threads that plans ran on, and takes its time for them."""

    def __init__(self, lanes: int, express_lanes: int, on_run: Callable[[], None]) -> None:
        super().__init__(lanes=lanes, express_lanes=express_lanes, on_run=on_run)
        self.threads: set[str] = set()
        self.plan_s = 0.0
        self.costly = ""  # what texts begin with that take this long

    def plan(self, item: MeasuringItem, namespace: str) -> Plan[MeasuringItem]:
        self.threads.add(threading.current_thread().name.partition("_")[0])
        until = time.thread_time() + self.plan_s
        while item.text.startswith(self.costly) and time.thread_time() < until:
            pass
        return super().plan(item, namespace)


class Served:
    """A loop, its engine's gate, and every report."""

    def __init__(
        self,
        *,
        lanes: int = 2,
        express_lanes: int = 0,
        batches: int = 10_000,
        stuck_after_s: float = 5.0,
    ) -> None:
        self.gate = Gate(batches)
        self.engine = ThreadsEngine(lanes, express_lanes, self.gate)
        self.reports: list[CallReport] = []
        self.loop: Loop = loop_for(
            RECORD,
            self.engine,
            RECORD.bind({}, "uint8"),
            state_bytes=10_000,
            bundle="measuring@1.0.0+0123456789ab",
            observer=self.reports.append,
            planners=2,
            stuck_after_s=stuck_after_s,
        )

    async def submit(
        self,
        *texts: str,
        stream: bool = False,
        deadline_s: float = 60.0,
        priority: Priority = Priority.NORMAL,
    ) -> LoopAnswer:
        return await self.loop.submit(
            Call(
                request_id="r1",
                tenant="t",
                workload="measuring",
                model="measuring",
                items=tuple(_item(text) for text in texts),
                priority=priority,
                deadline_s=deadline_s,
                stream=stream,
            )
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - the lanes set no asyncio event
            await asyncio.sleep(0.001)


def _item(text: str) -> MeasuringItem:
    return MeasuringItem(text=text, trouble="refuse" if text == "refuse" else None)


@asynccontextmanager
async def serving(
    *,
    lanes: int = 2,
    express_lanes: int = 0,
    batches: int = 10_000,
    stuck_after_s: float = 5.0,
) -> AsyncIterator[Served]:
    served = Served(
        lanes=lanes, express_lanes=express_lanes, batches=batches, stuck_after_s=stuck_after_s
    )
    served.loop.start()
    try:
        yield served
    finally:
        served.gate.may_run.release(10_000)
        await served.loop.stop(5.0)
        await served.until(lambda: not served.loop.snapshot().alive)


async def read(answer: LoopAnswer) -> list[Event]:
    return [event async for batch in answer.batches() for event in batch]


def lengths(events: list[Event]) -> list[object]:
    return [event.payload for event in events if isinstance(event, Output)]


async def test_calls_come_back_whole() -> None:
    async with serving() as served:
        answers = [await served.submit("a" * at, "b" * at) for at in range(200)]
        for at, answer in enumerate(answers):
            events = await read(answer)
            assert sorted(map(int, map(str, lengths(events)))) == [at, at]
            assert isinstance(events[-1], Ended)
        snapshot = served.loop.snapshot()
        assert (snapshot.queued_items, snapshot.running_slots, snapshot.state_held_bytes) == (
            0,
        ) * 3
        assert snapshot.finished == {"ok": 200}
        assert all(report.outcome == "ok" for report in served.reports)


async def test_lanes_run_batches_beside_each_other() -> None:
    async with serving(lanes=2, batches=0) as served:
        answers = [await served.submit("a" * 80) for _ in range(4)]
        await served.until(lambda: served.gate.running == 2)
        served.gate.may_run.release(10)
        for answer in answers:
            await read(answer)
        assert served.gate.most_at_once == 2
        assert served.gate.threads == {"headpond-lane-0", "headpond-lane-1"}


async def test_a_small_call_waits_for_no_large_one() -> None:
    async with serving(lanes=1, express_lanes=1, batches=0) as served:
        large = await served.submit(*["a" * 80] * 3)
        await served.until(lambda: served.gate.running == 1)
        small = await served.submit("b")
        await served.until(lambda: served.gate.running == 2)
        served.gate.may_run.release(10)
        assert lengths(await read(small)) == [1]
        assert lengths(await read(large)) == [80] * 3


async def test_many_small_calls_keep_every_lane_busy() -> None:
    async with serving(lanes=2, express_lanes=2, batches=0) as served:
        answers = [await served.submit("a" * 80) for _ in range(8)]
        await served.until(lambda: served.gate.running == 2)
        served.gate.may_run.release(10)
        for answer in answers:
            assert lengths(await read(answer)) == [80]
        assert served.gate.most_at_once == 2


async def test_a_call_of_many_items_is_planned_in_parts_and_keeps_its_order() -> None:
    async with serving() as served:
        answer = await served.submit(*("x" * (at % 50) for at in range(2048)))
        events = await read(answer)
        by_item = sorted((e for e in events if isinstance(e, Output)), key=lambda each: each.item)
        assert [event.payload for event in by_item] == [at % 50 for at in range(2048)]


async def test_a_refused_item_refuses_the_call() -> None:
    async with serving() as served:
        with pytest.raises(InvalidRequest):
            await served.submit("fine", "refuse")
        assert served.loop.snapshot().queued_items == 0


async def test_an_engine_that_stands_still_is_not_ready() -> None:
    async with serving(lanes=1, batches=0, stuck_after_s=0.02) as served:
        answer = await served.submit("abc")
        await served.until(lambda: served.loop.snapshot().stuck)
        with pytest.raises(NotReady):
            await served.submit("abc")
        served.gate.may_run.release(1)
        assert lengths(await read(answer)) == [3]


async def test_what_waits_past_its_deadline_ends() -> None:
    async with serving(lanes=1, batches=0) as served:
        first = await served.submit("abc")
        await served.until(lambda: served.gate.running == 1)
        late = await served.submit("abc", deadline_s=0.01)
        await asyncio.sleep(0.02)
        served.gate.may_run.release(1)
        assert lengths(await read(first)) == [3]
        with pytest.raises(DeadlineExceeded):
            await read(late)


async def test_stopping_lets_admitted_work_finish() -> None:
    async with serving(lanes=2, batches=0) as served:
        answers = [await served.submit("a" * 80) for _ in range(5)]
        stopping = asyncio.create_task(served.loop.stop(5.0))
        await served.until(lambda: served.loop.snapshot().stopping)
        with pytest.raises(NotReady):
            await served.submit("late")
        served.gate.may_run.release(100)
        assert [lengths(await read(answer)) for answer in answers] == [[80]] * 5
        await stopping


async def test_what_is_not_done_when_draining_ends_is_lost() -> None:
    async with serving(lanes=1, batches=0) as served:
        answers = [await served.submit("a" * 80) for _ in range(3)]
        await served.until(lambda: served.gate.running == 1)
        stopping = asyncio.create_task(served.loop.stop(0.0))
        await served.until(lambda: served.loop.snapshot().stopping)
        await asyncio.sleep(0.01)
        served.gate.may_run.release(100)
        await stopping
        outcomes = []
        for answer in answers:
            try:
                outcomes.append(lengths(await read(answer)))
            except WorkerLost:
                outcomes.append(["lost"])
        assert ["lost"] in outcomes
        assert served.loop.snapshot().state_held_bytes == 0


async def test_cheap_plans_run_here_and_costly_ones_in_a_thread() -> None:
    async with serving() as served:
        for _ in range(300):
            await read(await served.submit("abc"))
        assert served.engine.threads == {"MainThread", "headpond-plan"}
        served.engine.plan_s = 0.002
        await read(await served.submit("abc"))
        served.engine.threads.clear()
        for _ in range(5):
            await read(await served.submit("abc"))
        assert served.engine.threads == {"headpond-plan"}


async def test_costly_plans_of_batch_work_have_a_thread_that_gives_way() -> None:
    async with serving() as served:
        served.engine.plan_s = 0.002
        events = await read(await served.submit("a", "bc", "def", priority=Priority.BATCH))
        assert sorted(map(int, map(str, lengths(events)))) == [1, 2, 3]
        assert served.engine.threads == {"headpond-aside"}


async def test_a_large_call_of_costly_plans_sends_no_cheap_one_to_a_thread() -> None:
    async with serving() as served:
        for _ in range(300):
            await read(await served.submit("abc"))
        served.engine.plan_s, served.engine.costly = 0.0005, "x"
        await read(await served.submit(*["x"] * 500))
        served.engine.threads.clear()
        await read(await served.submit("abc"))
        assert served.engine.threads == {"MainThread"}
