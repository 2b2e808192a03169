"""The continuous loop with its real thread and a real event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from headpond.call import Call, Done, Ended, Event, Output
from headpond.engine import Plan, Progress, Quantum
from headpond.errors import (
    DeadlineExceeded,
    EngineFailed,
    HeadpondError,
    InvalidRequest,
    NotReady,
    Overloaded,
    RequestCancelled,
    WorkerLost,
)
from headpond.scheduling import planner
from headpond.scheduling.answer import LoopAnswer
from headpond.scheduling.loop import loop_for
from headpond.scheduling.thread import EngineThread
from headpond.telemetry.report import CallReport
from headpond.testing.clock import FakeClock
from headpond.testing.echo import MOST_TEXT_BYTES, EchoEngine, EchoSlot, record
from headpond.testing.echo_dialect import EchoItem
from headpond.units import Work


class WaitingItem(EchoItem):
    """Waits when it is planned, if that is what it says."""

    @property
    def may_wait(self) -> bool:
        return self.text == "wait"


class GatedEngine(EchoEngine):
    """Echoes, but waits before each step until it may go on."""

    def __init__(self, steps: int = 10_000) -> None:
        super().__init__()
        self.may_step = threading.Semaphore(steps)
        self.in_step = threading.Event()
        self.entered = 0
        self.released = 0
        self.threads: set[str] = set()
        self.on_step: Callable[[], None] = lambda: None
        self.lost = False
        self.plan_s = 0.0
        self.may_plan = threading.Event()
        self.may_plan.set()

    def plan(self, item: EchoItem, namespace: str) -> Plan[EchoItem]:
        self.threads.add(threading.current_thread().name)
        until = time.thread_time() + self.plan_s
        while time.thread_time() < until:
            pass
        if item.text == "wait":
            self.may_plan.wait()
        if item.text == "refuse":
            raise InvalidRequest("no", param="text")
        if item.text == "break":
            raise RuntimeError("broken")
        return super().plan(item, namespace)

    def step(self, quanta: Sequence[Quantum[EchoSlot]]) -> list[Progress[str]]:
        self.entered += 1
        self.in_step.set()
        self.may_step.acquire()
        self.on_step()
        return super().step(quanta)

    def release(self, slot: EchoSlot) -> None:
        super().release(slot)
        self.released += 1


class Served:
    """A loop, its engine, and every report."""

    def __init__(
        self,
        engine: GatedEngine,
        clock: Callable[[], float],
        observer: Callable[[CallReport], None] | None = None,
        stuck_after_s: float = 5.0,
    ) -> None:
        self.engine = engine
        self.reports: list[CallReport] = []
        self.loop = loop_for(
            record,
            engine,
            record.bind(engine.symbols, "uint8"),
            state_bytes=4 * MOST_TEXT_BYTES,
            max_slots=8,
            bundle="echo@1.0.0+0123456789ab",
            observer=observer or self.reports.append,
            clock=clock,
            limits={"text_bytes": 1000},
            stuck_after_s=stuck_after_s,
        )

    async def submit(
        self, text: str = "hello", *, chunks: int = 1, stream: bool = True, deadline_s: float = 60.0
    ) -> LoopAnswer:
        return await self.loop.submit(
            Call(
                request_id="r1",
                tenant="t",
                workload="echo",
                model="echo",
                items=(WaitingItem(text=text, chunks=chunks),),
                deadline_s=deadline_s,
                stream=stream,
            )
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - the engine's thread sets no asyncio event
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(
    engine: GatedEngine | None = None,
    clock: Callable[[], float] = time.monotonic,
    observer: Callable[[CallReport], None] | None = None,
    stuck_after_s: float = 5.0,
) -> AsyncIterator[Served]:
    served = Served(engine or GatedEngine(), clock, observer, stuck_after_s)
    served.loop.start()
    try:
        yield served
    finally:
        served.engine.may_plan.set()
        served.engine.may_step.release(10_000)
        await served.loop.stop(5.0)
        await served.until(lambda: not served.loop.snapshot().alive)


async def read(answer: LoopAnswer) -> list[Event]:
    return [event async for batch in answer.batches() for event in batch]


def text_of(events: Sequence[Event]) -> str:
    return "".join(str(event.payload) for event in events if isinstance(event, Output))


async def test_a_stream_gives_its_pieces_and_then_ends() -> None:
    async with serving() as served:
        answer = await served.submit("the quick brown fox", chunks=5)
        assert (answer.accepted.bundle, answer.accepted.model) == (
            "echo@1.0.0+0123456789ab",
            "echo",
        )
        assert answer.accepted.work == Work(input_bytes=19, output_chunks=5)
        events = await read(answer)
        (report,) = served.reports
        assert text_of(events) == "the quick brown fox"
        done, ended = events[-2:]
        assert done == Done(0, Work(input_bytes=19, output_chunks=5))
        assert isinstance(ended, Ended)
        assert list(ended.phases_s) == ["queue", "speak"]
        assert (report.outcome, report.work, report.phases_s) == ("ok", ended.work, ended.phases_s)
        await answer.close()
        assert await read(answer) == []


async def test_a_call_that_does_not_stream_comes_in_one_batch() -> None:
    async with serving() as served:
        answer = await served.submit("abcdef", chunks=6, stream=False)
        (batch,) = [batch async for batch in answer.batches()]
        assert text_of(batch) == "abcdef"


async def test_many_calls_at_once_share_steps() -> None:
    async with serving() as served:
        texts = [f"text number {at}" for at in range(100)]
        answers = [await served.submit(text, chunks=4) for text in texts]
        got = await asyncio.gather(*(read(answer) for answer in answers))
        assert [text_of(events) for events in got] == texts
        snapshot = served.loop.snapshot()
        assert snapshot.finished == {"ok": 100}
        assert snapshot.steps < 400
        assert (snapshot.running_slots, snapshot.state_held_bytes, snapshot.queued_items) == (
            0,
            0,
            0,
        )
        assert snapshot.drain_rate is not None


@pytest.mark.parametrize(
    ("text", "error", "code"),
    [
        ("refuse", InvalidRequest, "invalid_request_error"),
        ("x" * 1001, InvalidRequest, "invalid_request_error"),
    ],
)
async def test_refusals_are_raised_and_reported_once(
    text: str, error: type[HeadpondError], code: str
) -> None:
    async with serving() as served:
        with pytest.raises(error):
            await served.submit(text)
        (report,) = served.reports
        assert (report.outcome, report.work, report.phases_s) == (code, Work(), {})
        assert served.loop.snapshot().refused == {code: 1}


async def test_planning_that_breaks_is_a_failure_and_no_refusal() -> None:
    async with serving() as served:
        with pytest.raises(EngineFailed):
            await served.submit("break")
        (report,) = served.reports
        assert (report.outcome, report.refused) == ("engine_failed", False)
        assert sum(report.phases_s.values()) == report.total_s
        snapshot = served.loop.snapshot()
        assert (snapshot.finished, snapshot.refused) == ({"engine_failed": 1}, {})


async def test_closing_an_answer_frees_its_slot_and_is_reported() -> None:
    async with serving(GatedEngine(steps=2)) as served:
        answer = await served.submit("x" * 100, chunks=100)
        first = await anext(aiter(answer.batches()))
        assert text_of(first) in {"x", "xx"}
        await answer.close()
        await answer.close()
        with pytest.raises(RequestCancelled):
            await read(answer)
        served.engine.may_step.release(2)
        await served.until(lambda: bool(served.reports))
        assert [report.outcome for report in served.reports] == ["request_cancelled"]
        assert served.engine.released == 1
        assert served.loop.snapshot().state_held_bytes == 0
        with pytest.raises(RequestCancelled):
            await anext(aiter(answer.batches()))  # nothing came after the close


async def test_a_reader_that_waits_is_woken_by_its_own_close() -> None:
    async with serving(GatedEngine(steps=0)) as served:
        answer = await served.submit()
        reader = asyncio.create_task(read(answer))
        await asyncio.to_thread(served.engine.in_step.wait)
        await answer.close()
        with pytest.raises(RequestCancelled):
            await reader


async def test_a_slow_reader_holds_neither_state_nor_steps() -> None:
    async with serving() as served:
        slow = await served.submit("x" * 500, chunks=500)
        await served.until(lambda: bool(served.reports))
        assert served.engine.released == 1
        assert served.loop.snapshot().state_held_bytes == 0
        assert text_of(await read(slow)) == "x" * 500


async def test_a_missed_deadline_is_raised_after_what_was_given() -> None:
    clock = FakeClock()
    engine = GatedEngine(steps=2)
    async with serving(engine, clock) as served:
        answer = await served.submit("abcd", chunks=4, deadline_s=1.0)
        got: list[Event] = []

        async def read_on() -> None:
            async for batch in answer.batches():
                got.extend(batch)
                if text_of(got) == "ab":
                    clock.advance(2.0)
                    engine.may_step.release(1)

        with pytest.raises(DeadlineExceeded):
            await read_on()
        # The third step began in time or did not: the engine's thread may be there by now.
        assert text_of(got) in {"ab", "abc"}
        assert not any(isinstance(event, Ended) for event in got)


async def test_a_stuck_engine_is_seen_and_blocks_nobody_else() -> None:
    clock = FakeClock()
    async with serving(GatedEngine(steps=0), clock) as served:
        waiting = await served.submit(deadline_s=1e5)
        await asyncio.to_thread(served.engine.in_step.wait)
        assert not served.loop.snapshot().stuck
        clock.advance(5.1)
        snapshot = served.loop.snapshot()
        assert (snapshot.stuck, snapshot.alive, snapshot.running_slots) == (True, True, 1)
        assert snapshot.busy_s == pytest.approx(5.1)
        with pytest.raises(NotReady, match="stuck"):
            await served.submit()
        served.engine.may_step.release(2)
        assert text_of(await read(waiting)) == "hello"
        assert not served.loop.snapshot().stuck
        assert text_of(await read(await served.submit())) == "hello"


async def test_a_stuck_engine_fails_what_it_works_on_and_lets_go_of_what_waits() -> None:
    clock = FakeClock()
    engine = GatedEngine(steps=0)
    async with serving(engine, clock) as served:
        running = [await served.submit(f"n{at}", chunks=2, deadline_s=1e5) for at in range(8)]
        await asyncio.to_thread(engine.in_step.wait)
        waiting = await served.submit("late", deadline_s=1e5)
        assert not served.loop.give_up()
        clock.advance(5.1)
        assert served.loop.give_up()
        outcomes = []
        for answer in (*running, waiting):
            with pytest.raises((EngineFailed, WorkerLost)) as raised:
                await read(answer)
            outcomes.append(type(raised.value))
        assert EngineFailed in outcomes[:8]
        assert outcomes[8] is WorkerLost
        assert len(served.reports) == 9
        engine.may_step.release(1_000)  # it goes on, late
        await served.until(lambda: not served.loop.snapshot().running_slots)
        assert served.loop.snapshot().state_held_bytes == 0
        assert text_of(await read(await served.submit())) == "hello"
        assert len(served.reports) == 10


async def test_a_lost_engine_loses_what_it_works_on_and_takes_nothing_more() -> None:
    engine = GatedEngine(steps=0)
    async with serving(engine) as served:
        answers = [await served.submit(f"n{at}", chunks=2, deadline_s=1e5) for at in range(2)]
        await asyncio.to_thread(engine.in_step.wait)
        assert not served.loop.give_up()
        engine.lost = True
        with pytest.raises(NotReady, match="does not run"):
            await served.submit()
        assert served.loop.snapshot().lost
        assert served.loop.give_up()
        for answer in answers:
            with pytest.raises(WorkerLost):
                await read(answer)


async def test_a_step_that_never_ends_does_not_keep_its_reader_forever() -> None:
    clock = FakeClock()  # the scheduler, between steps, sees no time pass
    async with serving(GatedEngine(steps=0), clock, stuck_after_s=0.01) as served:
        answer = await served.submit(deadline_s=0.01)
        await asyncio.to_thread(served.engine.in_step.wait)
        with pytest.raises(DeadlineExceeded):
            await read(answer)
        assert served.reports == []
        clock.advance(1.0)
        served.engine.may_step.release(1_000)
        await served.until(lambda: bool(served.reports))
        assert [report.outcome for report in served.reports] == ["deadline_exceeded"]


async def test_stopping_lets_admitted_work_finish_and_takes_no_more() -> None:
    async with serving(GatedEngine(steps=0)) as served:
        answers = [await served.submit(f"n{at}", chunks=2) for at in range(20)]
        stopping = asyncio.create_task(served.loop.stop(30.0))
        await served.until(lambda: served.loop.snapshot().stopping)
        with pytest.raises(NotReady, match="stopped"):
            await served.submit()
        served.engine.may_step.release(1_000)
        await stopping
        assert [text_of(await read(answer)) for answer in answers] == [f"n{at}" for at in range(20)]
        assert not served.loop.snapshot().alive
        with pytest.raises(NotReady):
            await served.submit()


async def test_what_is_not_done_when_draining_ends_is_lost_not_cut_short() -> None:
    engine = GatedEngine(steps=1)
    async with serving(engine) as served:
        running = await served.submit("abc", chunks=3)
        await served.until(lambda: engine.entered == 2)
        waiting = [await served.submit(f"n{at}", stream=False) for at in range(10)]
        stopping = asyncio.create_task(served.loop.stop(0.0))
        await served.until(lambda: served.loop.snapshot().stopping)
        worker = served.loop._worker
        assert isinstance(worker, EngineThread)
        await served.until(lambda: worker._abortion is not None)
        engine.may_step.release(1)
        await stopping
        for answer in (running, *waiting):
            with pytest.raises(WorkerLost):
                await read(answer)
        assert [report.outcome for report in served.reports] == ["worker_lost"] * 11
        assert engine.released >= 1
        assert served.loop.snapshot().state_held_bytes == 0


async def test_stopping_does_not_wait_for_a_stuck_engine() -> None:
    engine = GatedEngine(steps=0)
    served = Served(engine, time.monotonic, stuck_after_s=0.02)
    served.loop.start()
    answer = await served.submit(chunks=3)
    await asyncio.to_thread(engine.in_step.wait)
    await served.loop.stop(0.0)
    with pytest.raises(WorkerLost):
        await read(answer)
    assert [report.outcome for report in served.reports] == ["worker_lost"]
    engine.may_step.release(100)
    await served.until(lambda: not served.loop.snapshot().alive)
    await asyncio.sleep(0)
    assert engine.released == 1
    assert len(served.reports) == 1


async def test_a_loop_that_was_never_started_is_not_ready_and_can_be_stopped() -> None:
    served = Served(GatedEngine(), time.monotonic)
    with pytest.raises(NotReady, match="does not run"):
        await served.submit()
    await served.loop.stop(0.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_callers_hear_of_it_when_the_engines_thread_dies() -> None:
    def leave() -> None:
        raise SystemExit

    async with serving(GatedEngine(steps=1)) as served:
        served.engine.on_step = leave
        answer = await served.submit(chunks=3)
        with pytest.raises(WorkerLost):
            await read(answer)
        await served.until(lambda: not served.loop.snapshot().alive)
        with pytest.raises(NotReady, match="does not run"):
            await served.submit()
        assert [report.outcome for report in served.reports] == ["worker_lost", "model_not_ready"]


async def test_an_observer_that_raises_spoils_no_answer() -> None:
    def spoil(report: CallReport) -> None:
        raise ValueError(report.outcome)

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
    async with serving(observer=spoil) as served:
        answers = [await served.submit(f"n{at}") for at in range(5)]
        assert [text_of(await read(answer)) for answer in answers] == [f"n{at}" for at in range(5)]
    assert failures


async def test_plans_that_may_wait_hold_up_nobody() -> None:
    async with serving() as served:
        served.engine.may_plan.clear()
        waiting = [asyncio.create_task(served.submit("wait")) for _ in range(planner.WAITING_MOST)]
        for _ in range(300):
            assert text_of(await read(await served.submit("plain"))) == "plain"
        assert not any(task.done() for task in waiting)
        assert served.engine.threads >= {"MainThread", "headpond-plan_0", "headpond-wait_0"}
        served.engine.may_plan.set()
        for answer in await asyncio.gather(*waiting):
            assert text_of(await read(answer)) == "wait"


async def test_a_plan_that_waits_keeps_no_caller_beyond_its_deadline() -> None:
    async with serving() as served:
        served.engine.may_plan.clear()
        with pytest.raises(DeadlineExceeded):
            await served.submit("wait", deadline_s=0.02)
        assert [report.outcome for report in served.reports] == ["deadline_exceeded"]
        served.engine.may_plan.set()


async def test_the_line_for_planning_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MOST_AT_ONCE", 3)
    async with serving() as served:
        served.engine.plan_s = 0.005
        answers = await asyncio.gather(
            *(served.submit(f"n{at}") for at in range(6)), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, Overloaded)]
        assert len(refused) == 3
        assert {refusal.retry_after_s for refusal in refused} == {1.0}
        admitted = [answer for answer in answers if isinstance(answer, LoopAnswer)]
        assert [text_of(await read(answer)) for answer in admitted] == ["n0", "n1", "n2"]


async def test_a_caller_that_leaves_while_its_call_is_planned_is_reported() -> None:
    async with serving() as served:
        served.engine.plan_s = 0.05
        submitting = asyncio.create_task(served.submit())
        await served.until(lambda: bool(served.engine.threads))
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        assert [report.outcome for report in served.reports] == ["request_cancelled"]
        assert served.loop.snapshot().queued_calls == 0


async def test_a_storm_of_readers_that_leave_ends_with_nothing_held() -> None:
    async with serving() as served:

        async def leave(after: int) -> None:
            answer = await served.submit("x" * 50, chunks=50)
            reading: Awaitable[list[Event]] = read(answer)
            if after:
                task = asyncio.ensure_future(reading)
                await asyncio.sleep(after / 1000)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            else:
                await reading
            await answer.close()

        await asyncio.gather(*(leave(at % 4) for at in range(120)))
        await served.until(lambda: len(served.reports) == 120)
        assert served.engine.released == sum(bool(report.work) for report in served.reports)
        snapshot = served.loop.snapshot()
        assert (snapshot.running_slots, snapshot.state_held_bytes) == (0, 0)
        assert sum(snapshot.finished.values()) == 120
