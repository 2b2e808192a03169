"""The routed backend over handles that live in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pytest

from headpond import routing
from headpond.admission.backlog import Backlog, Wait
from headpond.bundle.alias import AliasTable
from headpond.call import Accepted, Call, Done, Ended, Event, ModelCard, Output, Priority
from headpond.errors import (
    DeadlineExceeded,
    HeadpondError,
    ModelNotFound,
    NotReady,
    Overloaded,
    WorkerLost,
)
from headpond.hop import Answered, ReplicaStatus
from headpond.lane import LaneAddress, LaneServer
from headpond.routing import RoutedBackend
from headpond.units import Work

EVENTS: tuple[Event, ...] = (Output(0, "hello"), Done(0, Work(tokens=1)), Ended(Work(tokens=1)))


class FakeHandle:
    """One application whose replica does as it is told."""

    def __init__(self, bundle: str = "toy@1.0.0+abc") -> None:
        self.accepted = Accepted(bundle=bundle, model="toy", work=Work(tokens=1))
        self.replies: list[HeadpondError | None] = []
        self.late: list[HeadpondError] = []
        self.reason: str | None = None
        self.replicas = 1
        self.calls: list[Call] = []
        self.cancelled = 0
        self.hangs = False
        self.asked = asyncio.Event()
        self.holds_back: asyncio.Event | None = None
        self.sleeps = False
        self.backlog = Backlog()
        self.lanes = LaneServer()
        self.address: LaneAddress | None = None

    def _next(self, call: Call) -> HeadpondError | None:
        self.calls.append(call)
        return self.replies.pop(0) if self.replies else None

    async def answer(self, call: Call) -> Answered | HeadpondError:
        reply = self._next(call)
        if self.hangs:
            await asyncio.sleep(60)
        if isinstance(reply, WorkerLost):
            raise reply
        if self.late:
            return Answered(accepted=self.accepted, events=(), error=self.late.pop(0))
        return reply or Answered(accepted=self.accepted, events=EVENTS)

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        if self.address is None:
            self.address = await self.lanes.start("127.0.0.1")
        if not self.lanes.is_open(router_id):
            return self.address
        reply = self._next(call)
        if isinstance(reply, WorkerLost):
            raise reply
        if reply is not None:
            return reply
        self.lanes.send(router_id, stream, self.accepted)
        try:
            for event in EVENTS:
                await asyncio.sleep(0.01)
                self.lanes.send(router_id, stream, (event,))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return None

    def comes_over(self, stream: int, lane: LaneAddress) -> None:
        """Nobody stands still here."""

    async def statuses(self) -> Sequence[ReplicaStatus]:
        self.asked.set()
        if self.holds_back is not None:
            await self.holds_back.wait()
        card = ModelCard(
            name="toy",
            workload="toy",
            bundles=(self.accepted.bundle,),
            created_s=7,
            limits={"context_tokens": 9},
        )
        status = ReplicaStatus(card=card, reason=self.reason, backlog=self.backlog)
        return [status] * self.replicas

    async def asleep(self) -> bool:
        return self.sleeps

    async def expositions(self) -> Mapping[str, str]:
        return {"r1": "# TYPE up gauge\nup 1\n"}


def call(*, model: str = "chat", stream: bool = False, deadline_s: float = 5.0) -> Call:
    return Call(
        request_id="r-1",
        tenant="t",
        workload="toy",
        model=model,
        items=("x",),
        deadline_s=deadline_s,
        stream=stream,
    )


@pytest.fixture
def handle() -> FakeHandle:
    return FakeHandle()


@pytest.fixture
async def backend(handle: FakeHandle) -> AsyncIterator[RoutedBackend]:
    routed = RoutedBackend(lambda app: handle if app == "toy-app" else None)
    await routed.start(AliasTable({"chat": {"toy-app": 1}, "later": {"missing-app": 1}}))
    yield routed
    await routed.stop()
    await handle.lanes.stop()


async def collect(backend: RoutedBackend, sent: Call) -> list[Event]:
    answer = await backend.submit(sent)
    try:
        return [event async for batch in answer.batches() for event in batch]
    finally:
        await answer.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_events_come_through_whole_and_streamed(
    backend: RoutedBackend, handle: FakeHandle, *, stream: bool
) -> None:
    assert tuple(await collect(backend, call(stream=stream))) == EVENTS
    assert handle.cancelled == 0


async def test_what_fails_after_it_was_admitted_says_by_whom(
    backend: RoutedBackend, handle: FakeHandle
) -> None:
    handle.late = [DeadlineExceeded()]
    answer = await backend.submit(call())
    assert answer.accepted == handle.accepted
    with pytest.raises(DeadlineExceeded):
        await anext(aiter(answer.batches()))


async def test_a_call_that_a_replica_lost_after_it_was_admitted_is_tried_again(
    backend: RoutedBackend, handle: FakeHandle
) -> None:
    handle.late = [WorkerLost()]
    assert tuple(await collect(backend, call())) == EVENTS
    assert len(handle.calls) == 2


@pytest.mark.parametrize("name", ["toy", "toy@1.0.0", "toy@1.0.0+abc"])
async def test_a_bundle_can_be_asked_for_by_its_names(backend: RoutedBackend, name: str) -> None:
    assert tuple(await collect(backend, call(model=name))) == EVENTS


async def test_an_unknown_model_names_the_field(backend: RoutedBackend) -> None:
    with pytest.raises(ModelNotFound, match="`nope`") as raised:
        await backend.submit(call(model="nope"))
    assert raised.value.param == "model"


async def test_a_model_without_replicas_is_refused_at_once(
    backend: RoutedBackend, handle: FakeHandle
) -> None:
    with pytest.raises(NotReady, match="no replica is running"):
        await backend.submit(call(model="later"))
    assert await backend.not_ready() == {"later": "no replica is running"}
    assert not handle.calls


async def test_without_an_alias_table_the_router_is_not_ready() -> None:
    fresh = RoutedBackend(lambda app: None)
    assert await fresh.not_ready() == {"*": "the router has no alias table yet"}


async def test_a_call_that_went_well_is_a_sign_of_life(
    backend: RoutedBackend, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.submit(call())
    handle.replicas = 0
    await backend._poll({"toy-app", "missing-app"})
    await backend.submit(call())
    monkeypatch.setattr(routing, "_ALIVE_S", 0.0)
    with pytest.raises(NotReady):
        await backend.submit(call())


async def test_the_workload_of_a_model_is_known_while_it_is_replaced(
    backend: RoutedBackend, handle: FakeHandle
) -> None:
    handle.replicas = 0
    await backend._poll({"toy-app", "missing-app"})
    assert backend.workload_of("chat") == "toy"
    assert backend.workload_of("nobody") is None
    assert backend.only_model("toy") == "chat"
    assert backend.only_model("other") is None


async def test_a_model_without_replicas_that_may_sleep_is_woken_by_a_call(
    backend: RoutedBackend, handle: FakeHandle
) -> None:
    handle.replicas, handle.sleeps = 0, True
    await backend.start(AliasTable({"chat": {"toy-app": 1}}))
    assert await backend.not_ready() == {}
    assert [card.name for card in await backend.models()] == ["chat"]
    assert tuple(await collect(backend, call(model="toy@1.0.0"))) == EVENTS
    assert tuple(await collect(backend, call(stream=True))) == EVENTS


async def test_calls_of_a_target_without_replicas_go_to_another_one() -> None:
    apps = {"a": FakeHandle("toy@1.0.0+a"), "b": FakeHandle("toy@2.0.0+b")}
    routed = RoutedBackend(apps.get)
    apps["b"].replicas = 0
    await routed.start(AliasTable({"chat": {"a": 1, "b": 99, "gone": 9}}))
    assert await routed.not_ready() == {}
    assert routed.bundle_of("chat", "any") == "toy@1.0.0+a"
    for number in range(20):
        assert tuple(await collect(routed, replace(call(), request_id=f"r{number}"))) == EVENTS
    assert len(apps["a"].calls) == 20
    await routed.stop()


async def test_a_call_that_lost_its_replica_is_tried_on_another_version() -> None:
    apps = {"a": FakeHandle("toy@1.0.0+a"), "b": FakeHandle("toy@2.0.0+b")}
    routed = RoutedBackend(apps.get)
    await routed.start(AliasTable({"chat": {"a": 1, "b": 1}}))
    for app in apps.values():
        app.replies = [WorkerLost()]
    with pytest.raises(WorkerLost):
        await routed.submit(call())
    assert [len(app.calls) for app in apps.values()] == [1, 1]
    await routed.stop()


async def test_calls_of_one_session_go_to_one_version() -> None:
    apps = {"a": FakeHandle("toy@1.0.0+a"), "b": FakeHandle("toy@2.0.0+b")}
    routed = RoutedBackend(apps.get)
    await routed.start(AliasTable({"chat": {"a": 1, "b": 1}}))
    for number in range(20):
        sent = replace(call(), request_id=f"r{number}", session="s-1")
        await (await routed.submit(sent)).close()
    assert sorted(len(app.calls) for app in apps.values()) == [0, 20]
    await routed.stop()


async def test_readiness_follows_the_replicas(backend: RoutedBackend, handle: FakeHandle) -> None:
    table = AliasTable({"chat": {"toy-app": 1}})
    handle.reason = "the engine has made no progress in time"
    await backend.start(table)
    assert await backend.not_ready() == {"chat": handle.reason}
    handle.reason = None
    await backend.start(table)
    assert await backend.not_ready() == {}


async def test_readiness_is_followed_after_the_table_changes_amid_a_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "_STATUS_PERIOD_S", 0.02)
    apps = {"a": FakeHandle("toy@1.0.0+a"), "b": FakeHandle("toy@2.0.0+b")}
    routed = RoutedBackend(apps.get)
    await routed.start(AliasTable({"chat": {"a": 1}}))
    async with asyncio.timeout(20):
        apps["a"].holds_back = asyncio.Event()
        apps["a"].asked.clear()
        await apps["a"].asked.wait()  # the next poll is waiting for its answer now
        changing = asyncio.create_task(
            routed.start(AliasTable({"old": {"a": 1}, "chat": {"b": 1}}))
        )
        await apps["b"].asked.wait()
        apps["a"].holds_back.set()
        await changing
        assert await routed.not_ready() == {}
        apps["b"].reason = "stuck"
        for _ in range(2):  # that the second is asked says that the first was taken in
            apps["b"].asked.clear()
            await apps["b"].asked.wait()
        assert (await routed.not_ready()).get("chat") == "stuck"
    await routed.stop()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_lost_replica_is_tried_once_more(
    backend: RoutedBackend, handle: FakeHandle, *, stream: bool
) -> None:
    handle.replies = [WorkerLost()]
    assert tuple(await collect(backend, call(stream=stream))) == EVENTS
    assert len(handle.calls) == 2
    assert handle.calls[1].deadline_s < handle.calls[0].deadline_s


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_loses_two_replicas_is_given_up(
    backend: RoutedBackend, handle: FakeHandle, *, stream: bool
) -> None:
    handle.replies = [WorkerLost(), WorkerLost(), None]
    with pytest.raises(WorkerLost):
        await backend.submit(call(stream=stream))
    assert len(handle.calls) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_not_repeated(
    backend: RoutedBackend, handle: FakeHandle, *, stream: bool
) -> None:
    handle.replies = [Overloaded("full", retry_after_s=3.0)]
    with pytest.raises(Overloaded, match="full"):
        await backend.submit(call(stream=stream))
    assert len(handle.calls) == 1


async def test_what_every_replica_would_refuse_is_sent_nowhere(
    backend: RoutedBackend, handle: FakeHandle
) -> None:
    line = {(Priority.NORMAL, "t"): Wait(wait_s=30.0, calls=1000)}
    handle.backlog = Backlog(waits=line, longest_s=10.0)
    await backend._poll(set(backend._handles))
    with pytest.raises(Overloaded) as refused:
        await backend.submit(call(deadline_s=60.0))
    assert refused.value.retry_after_s is not None
    with pytest.raises(Overloaded):
        backend.check_turn(call(deadline_s=60.0).claim)
    backend.check_turn(replace(call(deadline_s=60.0).claim, workload="another"))
    assert not handle.calls
    await backend.submit(replace(call(deadline_s=60.0), tenant="other"))
    handle.backlog = Backlog()
    await backend._poll(set(backend._handles))
    await backend.submit(call(deadline_s=60.0))


async def test_a_replica_that_stands_still_is_not_waited_for(
    backend: RoutedBackend, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "_GRACE_S", 0.01)
    handle.hangs = True
    with pytest.raises(DeadlineExceeded):
        await backend.submit(call(deadline_s=0.02))


async def test_closing_a_stream_early_cancels_it(
    backend: RoutedBackend, handle: FakeHandle
) -> None:
    answer = await backend.submit(call(stream=True))
    await answer.close()
    await answer.close()
    await asyncio.sleep(0.005)
    assert handle.cancelled == 1


async def test_models_are_listed_by_alias_with_their_bundles(backend: RoutedBackend) -> None:
    (card,) = await backend.models()
    assert (card.name, card.bundles) == ("chat", ("toy@1.0.0+abc",))


async def test_metrics_carry_the_replica(backend: RoutedBackend) -> None:
    assert 'up{replica="r1"} 1.0' in await backend.metrics()


async def test_weights_split_traffic() -> None:
    apps = {"a": FakeHandle("toy@1.0.0+a"), "b": FakeHandle("toy@2.0.0+b")}
    routed = RoutedBackend(apps.get)
    await routed.start(AliasTable({"chat": {"a": 1, "b": 3}}))
    for number in range(400):
        sent = Call(
            request_id=f"r{number}",
            tenant="t",
            workload="toy",
            model="chat",
            items=("x",),
            deadline_s=5.0,
        )
        await (await routed.submit(sent)).close()
    assert 60 < len(apps["a"].calls) < 140
    assert len(apps["a"].calls) + len(apps["b"].calls) == 400
    await routed.stop()
