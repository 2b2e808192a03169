"""Items that get their input while they run: by hand, and in the loop with its thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.batching import Feed
from headpond.call import Call, Done, Ended, Event, Failed, Output
from headpond.errors import (
    DeadlineExceeded,
    EngineFailed,
    HeadpondError,
    InvalidRequest,
    Overloaded,
    RequestCancelled,
    WorkerLost,
)
from headpond.scheduling.answer import LoopAnswer
from headpond.scheduling.keeping_up import USED, KeepingUp
from headpond.scheduling.loop import Loop, loop_for
from headpond.telemetry.report import CallReport
from headpond.testing.clock import FakeClock
from headpond.testing.formed import MeasuringEngine, MeasuringItem, measuring_record
from headpond.testing.listening import (
    GRANULE,
    SLOT_BYTES,
    Letters,
    Listener,
    ListeningEngine,
    Silence,
    listening_record,
)
from headpond.testing.simulation import SimulatedCall, SimulatedLoop
from headpond.units import Work

LIVE = Listener(live=True)


def call(item: object, *, deadline_s: float = 60.0) -> Call:
    return Call(
        request_id="r",
        tenant="t",
        workload="listening",
        model="ear",
        items=(item,),
        deadline_s=deadline_s,
        stream=True,
    )


def text_of(events: Sequence[Event]) -> str:
    return "".join(str(event.payload) for event in events if isinstance(event, Output))


class ByHand:
    """A loop that is driven turn by turn; a step takes `step_s` and `each_s` for each ear."""

    def __init__(self, *, slots: int = 16, step_s: float = 0.0, each_s: float = 0.0) -> None:
        self.clock = FakeClock()
        self.engine = ListeningEngine(
            on_step=lambda ears: self.clock.advance(step_s + each_s * ears)
        )
        self.loop = SimulatedLoop(
            listening_record(), self.engine, self.clock, symbols={}, max_slots=slots
        )

    def submit(self, item: Listener = LIVE, *, deadline_s: float = 60.0) -> SimulatedCall:
        return self.loop.submit(call(item, deadline_s=deadline_s))

    def say(self, spoken: SimulatedCall, text: str) -> None:
        self.loop.scheduler.feed(spoken.live, Letters(text), len(text))

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.turn()


def test_a_fed_item_is_stepped_only_when_there_is_input() -> None:
    served = ByHand()
    spoken = served.submit()
    served.turns(5)
    assert (served.engine.steps, len(served.engine.open)) == ([], 1)
    served.say(spoken, "hello")
    served.turns(5)
    assert served.engine.steps == [1, 1]
    assert text_of(spoken.events) == "hello"
    served.say(spoken, "you")
    served.loop.scheduler.feed(spoken.live, Silence(), 0)
    served.turns(3)
    assert text_of(spoken.events) == "helloyou"
    assert spoken.events[-2:] == [Done(0, Work(letters=8)), spoken.events[-1]]
    assert isinstance(spoken.events[-1], Ended)
    assert not served.engine.open
    assert served.loop.scheduler.residency.ledger.held_bytes == 0


def test_fed_items_and_whole_ones_share_steps() -> None:
    served = ByHand()
    spoken, whole = served.submit(), served.submit(Listener(text="abcdefgh"))
    served.say(spoken, "12345678")
    served.turns(2)
    assert served.engine.steps == [2, 2]
    assert (text_of(whole.events), text_of(spoken.events)) == ("abcdefgh", "12345678")
    assert (whole.over, spoken.over) == (True, False)


def test_input_that_comes_while_a_step_runs_is_not_left_lying() -> None:
    served = ByHand()
    spoken = served.submit()
    late = iter(["late"])

    def speak_late(_: int) -> None:
        for text in late:
            served.say(spoken, text)

    served.engine = ListeningEngine(on_step=speak_late)
    served.loop = SimulatedLoop(listening_record(), served.engine, served.clock, symbols={})
    spoken = served.submit()
    served.say(spoken, "in")
    served.turns(3)
    assert text_of(spoken.events) == "inlate"


def test_a_call_that_waits_for_input_ends_when_cancelled_or_late() -> None:
    served = ByHand()
    dropped, late = served.submit(), served.submit(deadline_s=1.0)
    served.turns(1)
    assert len(served.engine.open) == 2
    served.loop.cancel(dropped)
    served.turns(1)
    assert isinstance(dropped.error, RequestCancelled)
    served.clock.advance(1.0)
    served.turns(1)
    assert isinstance(late.error, DeadlineExceeded)
    assert not served.engine.open
    with pytest.raises(DeadlineExceeded):
        served.say(late, "anybody?")


def test_what_cannot_be_fed_says_so() -> None:
    served = ByHand()
    whole, short = served.submit(Listener(text="abc")), served.submit(Listener(live=True, most=5))
    with pytest.raises(InvalidRequest, match="no further input"):
        served.say(whole, "more")
    served.say(short, "abcd")
    with pytest.raises(InvalidRequest, match="more input than the 5 units"):
        served.say(short, "ef")
    served.say(short, "e")
    served.turns(3)
    assert text_of(short.events) == "abcde"


@pytest.mark.parametrize(("trouble", "error"), [("feed", EngineFailed), ("step", EngineFailed)])
def test_one_that_fails_hurts_no_other(trouble: str, error: type[HeadpondError]) -> None:
    served = ByHand()
    good = served.submit()
    bad = served.submit(Listener(live=True, trouble="feed" if trouble == "feed" else "step"))
    served.say(good, "good")
    served.say(bad, "bad")
    served.turns(6)
    (failed,) = [event for event in bad.events if isinstance(event, Failed)]
    assert isinstance(failed.error, error)
    assert text_of(good.events) == "good"
    assert len(served.engine.open) == 1


def test_wrong_input_is_the_callers_fault() -> None:
    served = ByHand()
    spoken = served.submit()
    served.loop.scheduler.feed(spoken.live, 7, 0)
    served.turns(2)
    (failed,) = [event for event in spoken.events if isinstance(event, Failed)]
    assert isinstance(failed.error, InvalidRequest)


def test_a_live_stream_never_waits_for_a_slot() -> None:
    served = ByHand(slots=2)
    for _ in range(2):
        served.submit()
        served.turns(1)
    with pytest.raises(Overloaded) as refusal:
        served.submit()
    assert refusal.value.retry_after_s
    assert served.loop.scheduler.residency.ledger.held_bytes == 2 * SLOT_BYTES


def test_a_live_stream_is_refused_that_would_make_others_late() -> None:
    # A step hears 0.1 s of input and takes 5 ms and 10 ms for each ear: 7 fit into 80 ms.
    served = ByHand(step_s=0.005, each_s=0.010, slots=100)
    live: list[SimulatedCall] = []
    for _ in range(7):
        live.append(served.submit())
        for spoken in live:
            served.say(spoken, "a" * GRANULE)
        served.turns(2)
    with pytest.raises(Overloaded, match="7 live streams are open, and 7 can be kept up with"):
        served.submit()


def test_whole_items_leave_room_for_live_ones() -> None:
    served = ByHand(step_s=0.005, each_s=0.010, slots=100)
    live = [served.submit() for _ in range(2)]
    for count in (1, 2):
        for spoken in live[:count]:
            served.say(spoken, "a" * GRANULE)
        served.turns(2)
    for _ in range(20):
        served.submit(Listener(text="b" * 40))
    steps = len(served.engine.steps)
    for _ in range(10):
        for spoken in live:
            served.say(spoken, "a" * GRANULE)
        served.turns(1)
    assert set(served.engine.steps[steps:]) == {7}
    served.loop.cancel(live[0])
    served.loop.cancel(live[1])
    served.turns(1)
    assert served.engine.steps[-1] == 20


@given(st.floats(1e-4, 0.05), st.floats(1e-4, 0.02), st.lists(st.integers(1, 40), min_size=30))
def test_keeping_up_finds_what_steps_cost(base_s: float, each_s: float, sizes: list[int]) -> None:
    keeping_up = KeepingUp(Feed(rate_per_s=1000.0, ahead=100))
    assert keeping_up.most is None
    for items in sizes:
        keeping_up.observe(items, 500 * items, base_s + each_s * items)
    exact = int((USED * 0.5 - base_s) / each_s)
    assert keeping_up.most is not None
    # Where steps hardly differ in size, the part that is shared is not known: then it is fewer.
    assert 1 <= keeping_up.most <= max(exact + 1, 1)


def test_neither_a_cold_first_step_nor_a_pause_is_taken_for_the_rule() -> None:
    keeping_up = KeepingUp(Feed(rate_per_s=1000.0, ahead=100))
    keeping_up.observe(1, 100, 5.0)
    assert keeping_up.most is None
    for items in (1, 2, 1, 2) * 10:
        keeping_up.observe(items, 100 * items, 0.005 + 0.01 * items)
    keeping_up.observe(2, 200, 1000.0)
    assert keeping_up.most is not None
    assert 4 <= keeping_up.most <= 7


class Served:
    """A loop with its thread."""

    def __init__(self, *, ahead: int = 20, slots: int = 8) -> None:
        self.may_step = threading.Event()
        self.may_step.set()
        self.engine = ListeningEngine(on_step=self._wait)
        self.reports: list[CallReport] = []
        record = listening_record(ahead=ahead)
        self.loop: Loop = loop_for(
            record,
            self.engine,
            record.bind({}, "uint8"),
            state_bytes=1_000,
            max_slots=slots,
            bundle="ear@1.0.0+0123456789ab",
            observer=self.reports.append,
        )

    def _wait(self, ears: int) -> None:
        self.may_step.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10.0):
            while not condition():  # noqa: ASYNC110 - the engine's thread sets no asyncio event
                await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(*, ahead: int = 20, slots: int = 8) -> AsyncIterator[Served]:
    served = Served(ahead=ahead, slots=slots)
    served.loop.start()
    try:
        yield served
    finally:
        served.may_step.set()
        await served.loop.stop(0.0)


async def say(answer: LoopAnswer, text: str) -> None:
    await answer.feed(Letters(text), len(text))


async def test_a_conversation_through_the_loop() -> None:
    async with serving() as served:
        answer = await served.loop.submit(call(LIVE))
        batches = answer.batches()
        heard = ""
        for text in ("how ", "are ", "you "):
            await say(answer, text)
            heard += text_of(await anext(batches))
        assert heard == "how are you "
        steps = len(served.engine.steps)
        await asyncio.sleep(0.05)
        assert len(served.engine.steps) == steps  # nothing spins while nothing is said
        await answer.feed(Silence(), 0)
        rest = [event async for batch in batches for event in batch]
        assert isinstance(rest[-1], Ended)
        with pytest.raises(RequestCancelled):
            await say(answer, "?")
        (report,) = served.reports
        assert (report.outcome, report.work) == ("ok", Work(letters=12))


async def test_who_is_too_fast_is_held_up() -> None:
    async with serving(ahead=8) as served:
        served.may_step.clear()
        answer = await served.loop.submit(call(LIVE))
        await say(answer, "abcd")
        await say(answer, "efgh")
        waiting = asyncio.create_task(say(answer, "ijkl"))
        await asyncio.sleep(0.05)
        assert (waiting.done(), answer.waiting_units) == (False, 8)
        served.may_step.set()
        await waiting
        await served.until(lambda: answer.waiting_units == 0)
        await answer.close()


async def test_who_is_held_up_is_told_when_the_call_is_over() -> None:
    async with serving(ahead=4) as served:
        served.may_step.clear()
        answer = await served.loop.submit(call(LIVE))
        await say(answer, "abcd")
        waiting = asyncio.create_task(say(answer, "efgh"))
        await asyncio.sleep(0.02)
        await answer.close()
        served.may_step.set()
        with pytest.raises(RequestCancelled):
            await waiting
        await served.until(lambda: not served.engine.open)


async def test_input_larger_than_may_wait_goes_through_alone() -> None:
    async with serving(ahead=4) as served:
        answer = await served.loop.submit(call(LIVE))
        await say(answer, "a" * 50)
        await say(answer, "b" * 50)
        await answer.feed(Silence(), 0)
        events = [event async for batch in answer.batches() for event in batch]
        assert text_of(events) == "a" * 50 + "b" * 50


async def test_a_call_that_waits_for_input_is_dropped_at_once() -> None:
    async with serving() as served:
        answers = [await served.loop.submit(call(LIVE)) for _ in range(8)]
        await served.until(lambda: len(served.engine.open) == 8)
        for answer in answers:
            await answer.close()
        await served.until(lambda: not served.engine.open)
        assert served.loop.snapshot().state_held_bytes == 0


async def test_a_deadline_passes_while_a_call_waits_for_input() -> None:
    async with serving() as served:
        answer = await served.loop.submit(call(LIVE, deadline_s=0.05))
        with pytest.raises(DeadlineExceeded):
            async for _ in answer.batches():
                pass
        await served.until(lambda: not served.engine.open)


async def test_stopping_ends_a_call_that_waits_for_input() -> None:
    async with serving() as served:
        answer = await served.loop.submit(call(LIVE))
        began_s = time.monotonic()
        await served.loop.stop(0.05)
        with pytest.raises(WorkerLost):
            await say(answer, "hello")
        with pytest.raises(WorkerLost):
            async for _ in answer.batches():
                pass
        assert time.monotonic() - began_s < 5.0
        assert not served.engine.open


async def test_a_formed_batch_takes_no_further_input() -> None:
    record = measuring_record()
    loop = loop_for(
        record,
        MeasuringEngine(),
        record.bind({}, "uint8"),
        state_bytes=1_000,
        bundle="b@1+0",
        observer=lambda report: None,
    )
    loop.start()
    try:
        asked = Call(
            request_id="r",
            tenant="t",
            workload="measuring",
            model="m",
            items=(MeasuringItem(text="abc"),),
            deadline_s=10.0,
        )
        answer = await loop.submit(asked)
        with pytest.raises(InvalidRequest, match="no further input"):
            await answer.feed("d", 1)
        assert answer.waiting_units == 0
    finally:
        await loop.stop(1.0)
