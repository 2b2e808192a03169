"""Input of routed calls: over the lane, in order, held up as at the replica itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from headpond import feeding
from headpond.backend import LocalBackend
from headpond.bundle.alias import AliasTable
from headpond.call import Answer, Call, Ended, ModelCard, Output
from headpond.door import Door
from headpond.errors import (
    DeadlineExceeded,
    HeadpondError,
    InvalidRequest,
    RequestCancelled,
    WorkerLost,
)
from headpond.feeding import Fed, FeedWindow
from headpond.hop import Answered, ReplicaStatus
from headpond.lane import LaneAddress
from headpond.routing import RoutedBackend
from headpond.scheduling.answer import LoopAnswer
from headpond.scheduling.loop import Loop, loop_for
from headpond.testing.listening import (
    Letters,
    Listener,
    ListeningEngine,
    Silence,
    listening_record,
)
from headpond.units import Work

BUNDLE = "ear@1.0.0+0123456789ab"
CARD = ModelCard(name="ear", workload="listening", bundles=(BUNDLE,), created_s=1, limits={})


class Replica:
    """A loop behind a door, in this process; all that a router needs of a handle."""

    def __init__(self, *, ahead: int = 8) -> None:
        self.may_step = threading.Event()
        self.may_step.set()
        self.engine = ListeningEngine(on_step=lambda _: self._wait())
        record = listening_record(ahead=ahead)
        self.loop: Loop = loop_for(
            record,
            self.engine,
            record.bind({}, "uint8"),
            state_bytes=1_000,
            max_slots=8,
            bundle=BUNDLE,
            observer=lambda _: None,
        )
        self.loop.start()
        self.answers: list[LoopAnswer] = []
        self.door: Door | None = None
        self.held: set[asyncio.Task[LaneAddress | HeadpondError | None]] = set()

    def _wait(self) -> None:
        self.may_step.wait()

    async def admit(self, call: Call) -> LoopAnswer:
        self.answers.append(await self.loop.submit(call))
        return self.answers[-1]

    async def answer(self, call: Call) -> Answered | HeadpondError:
        return await (await self._door()).answer(call, 1)

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        door = await self._door()
        task = asyncio.create_task(door.stream(call, router_id, stream))
        self.held.add(task)
        task.add_done_callback(self.held.discard)
        return await task

    def comes_over(self, stream: int, lane: LaneAddress) -> None:
        """Nobody stands still here."""

    async def statuses(self) -> Sequence[ReplicaStatus]:
        return [ReplicaStatus(card=CARD, reason=None)]

    async def asleep(self) -> bool:
        return False

    async def expositions(self) -> Mapping[str, str]:
        return {}

    async def die(self) -> None:
        """Break every connection, as a process that is killed does."""
        await (await self._door()).close()

    async def stop(self) -> None:
        self.may_step.set()
        await self.loop.stop(0.0)
        await self.die()
        await asyncio.gather(*self.held, return_exceptions=True)

    async def _door(self) -> Door:
        if self.door is None:
            self.door = await Door.open(cast("LocalBackend", self), "127.0.0.1")
        return self.door


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    replica = Replica()
    yield replica
    await replica.stop()


@pytest.fixture
async def backend(replica: Replica) -> AsyncIterator[RoutedBackend]:
    routed = RoutedBackend(lambda _: replica)
    await routed.start(AliasTable({"ear": {"ear": 1}}))
    yield routed
    await routed.stop()


def call(item: Listener | None = None, *, stream: bool = True) -> Call:
    return Call(
        request_id="r",
        tenant="t",
        workload="listening",
        model="ear",
        items=(item or Listener(live=True),),
        deadline_s=60.0,
        stream=stream,
    )


async def text_of(answer: Answer) -> str:
    """Return all that comes until the end."""
    text, ended = "", None
    async with asyncio.timeout(5.0):
        async for batch in answer.batches():
            text += "".join(str(event.payload) for event in batch if isinstance(event, Output))
            ended = batch[-1]
    assert isinstance(ended, Ended)
    return text


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0.001)


async def until_rests(replica: Replica) -> None:
    async with asyncio.timeout(5.0):
        while replica.engine.open:  # noqa: ASYNC110 - the engine's thread sets no asyncio event
            await asyncio.sleep(0.001)


async def test_what_is_fed_arrives_once_and_in_order(
    backend: RoutedBackend, replica: Replica
) -> None:
    answers = [await backend.submit(call()) for _ in range(3)]

    async def speak(at: int) -> str:
        said = [f"{at}{number:02d}" for number in range(40)]
        for word in said:
            await answers[at].feed(Letters(word), len(word))
        await answers[at].feed(Silence(), 0)
        heard = await text_of(answers[at])
        await answers[at].close()
        assert heard == "".join(said)
        return heard

    heard = await asyncio.gather(*(speak(at) for at in range(3)))
    assert len(set(heard)) == 3
    await until_rests(replica)


async def test_who_feeds_too_fast_waits_as_at_the_replica(
    backend: RoutedBackend, replica: Replica
) -> None:
    answer = await backend.submit(call())
    replica.may_step.clear()
    fed = 0

    async def speak() -> None:
        nonlocal fed
        for _ in range(20):
            await answer.feed(Letters("abcd"), 4)
            fed += 1
        await answer.feed(Silence(), 0)

    speaking = asyncio.create_task(speak())
    await turns()
    # 8 letters may wait at the replica, besides those of the step that stands still; one
    # more input is under way.
    assert fed in (3, 4)
    assert 8 <= answer.waiting_units <= 16
    replica.may_step.set()
    assert await text_of(answer) == "abcd" * 20
    await speaking
    await answer.close()


async def test_how_much_waits_is_known_also_while_nothing_is_fed(
    backend: RoutedBackend, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "_REPORT_S", 0.005)
    answer = await backend.submit(call())
    replica.may_step.clear()
    await answer.feed(Letters("abcdefgh"), 8)
    await turns()
    assert answer.waiting_units == 8
    replica.may_step.set()
    async with asyncio.timeout(5.0):
        while answer.waiting_units:  # noqa: ASYNC110 - reports come when they come
            await asyncio.sleep(0.001)
    await answer.close()
    await until_rests(replica)


async def test_a_lost_replica_ends_feeding_and_another_call_may_follow(
    backend: RoutedBackend, replica: Replica
) -> None:
    answer = await backend.submit(call())
    replica.may_step.clear()
    for _ in range(2):
        await answer.feed(Letters("abcdefgh"), 8)
    waiting = asyncio.create_task(answer.feed(Letters("x"), 1))
    await turns(5)
    await replica.die()
    with pytest.raises(WorkerLost):
        await waiting
    with pytest.raises(WorkerLost):
        await text_of(answer)
    with pytest.raises(WorkerLost):
        await answer.feed(Letters("y"), 1)
    await answer.close()
    replica.may_step.set()
    await until_rests(replica)  # nobody feeds that call or hears of it any more
    replica.door = None
    again = await backend.submit(call())
    await again.feed(Letters("again"), 5)
    await again.feed(Silence(), 0)
    assert await text_of(again) == "again"
    await again.close()


def told(answer: Answer) -> asyncio.Future[Work]:
    """Return what the call comes to, once that is told."""
    over = asyncio.get_running_loop().create_future()
    answer.when_over(over.set_result)
    return over


async def test_what_a_call_came_to_is_told_with_its_end(backend: RoutedBackend) -> None:
    answer = await backend.submit(call())
    over = told(answer)
    await answer.feed(Letters("hello"), 5)
    assert not over.done()
    await answer.feed(Silence(), 0)
    await text_of(answer)
    assert over.result() == Work(letters=5)
    await answer.close()
    assert told(answer).result() == Work(letters=5)


async def test_what_ran_of_a_call_that_is_closed_is_told_after_its_step(
    backend: RoutedBackend, replica: Replica
) -> None:
    answer = await backend.submit(call())
    over = told(answer)
    await answer.feed(Letters("hell"), 4)
    heard = answer.batches()
    while not [event for event in await anext(heard) if isinstance(event, Output)]:
        pass
    replica.may_step.clear()
    await answer.feed(Letters("o"), 1)
    await answer.close()
    await turns()
    replica.may_step.set()
    async with asyncio.timeout(5.0):
        assert (await over)["letters"] in (4, 5)
    await until_rests(replica)


async def test_what_ran_of_a_call_that_failed_is_told(
    backend: RoutedBackend, replica: Replica
) -> None:
    answer = await backend.submit(replace(call(), deadline_s=0.2))
    over = told(answer)
    await answer.feed(Letters("hell"), 4)
    with pytest.raises(DeadlineExceeded):
        await text_of(answer)
    await answer.close()
    async with asyncio.timeout(5.0):
        assert await over == Work(letters=4)
    await until_rests(replica)


async def test_a_lost_replica_tells_of_nothing(backend: RoutedBackend, replica: Replica) -> None:
    answer = await backend.submit(call())
    over = told(answer)
    await answer.feed(Letters("hello"), 5)
    await replica.die()
    async with asyncio.timeout(5.0):
        assert await over == Work()
    await answer.close()
    replica.door = None


async def test_a_lost_router_leaves_no_call_behind(replica: Replica) -> None:
    routed = RoutedBackend(lambda _: replica)
    await routed.start(AliasTable({"ear": {"ear": 1}}))
    await (await routed.submit(call())).feed(Letters("ab"), 2)
    await turns(5)
    assert replica.engine.open
    await routed.stop()
    await until_rests(replica)


async def test_input_beyond_what_was_admitted_is_refused_at_the_router(
    backend: RoutedBackend,
) -> None:
    answer = await backend.submit(call(Listener(live=True, most=5)))
    await answer.feed(Letters("abc"), 3)
    await answer.feed(Letters("def"), 3)
    with pytest.raises(InvalidRequest, match="more input than the 5 units"):
        await answer.feed(Letters("ghi"), 3)
    await answer.close()


async def test_a_call_that_is_over_takes_nothing(backend: RoutedBackend) -> None:
    answer = await backend.submit(call())
    await answer.feed(Silence(), 0)
    assert await text_of(answer) == ""
    with pytest.raises(RequestCancelled):
        await answer.feed(Letters("late"), 4)
    await answer.close()
    whole = await backend.submit(call(Listener(text="whole"), stream=False))
    with pytest.raises(RequestCancelled):
        await whole.feed(Letters("late"), 4)
    assert whole.waiting_units == 0
    assert await text_of(whole) == "whole"


async def test_a_window_lets_one_input_pass_at_a_time() -> None:
    window = FeedWindow()
    await window.enter(3)
    second = asyncio.create_task(window.enter(4))
    await asyncio.sleep(0)
    assert (second.done(), window.waiting_units) == (False, 3)
    window.tell(Fed(inputs=1, waiting_units=2))
    await second
    assert window.waiting_units == 6
    window.tell(Fed(inputs=1, waiting_units=0))
    assert window.waiting_units == 4
    third = asyncio.create_task(window.enter(1))
    window.end(WorkerLost())
    window.end(RequestCancelled())
    with pytest.raises(WorkerLost):
        await third
