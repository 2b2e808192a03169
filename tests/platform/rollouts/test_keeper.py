"""A router's keeper with fake applications: trials are watched, judged and taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headpond.call import Accepted, Call, Done, Ended, Event, Failed, ModelCard, Output, Priority
from headpond.engine import Json
from headpond.errors import (
    EngineFailed,
    HeadpondError,
    NotReady,
    Overloaded,
    RequestCancelled,
    WorkerLost,
)
from headpond.hop import Answered, ReplicaStatus
from headpond.http.metrics import HttpMetrics
from headpond.lane import LaneAddress
from headpond.rollouts.changes import AliasState
from headpond.rollouts.guard import Guard
from headpond.rollouts.keeper import Keeper, RouterReport
from headpond.rollouts.log import RolloutLog
from headpond.rollouts.metrics import RolloutMetrics
from headpond.rollouts.probe import Prober
from headpond.rollouts.revision import ShadowPlan
from headpond.rollouts.shadow import Shadows
from headpond.routing import RoutedBackend
from headpond.testing.clock import FakeClock
from headpond.testing.echo import record as echo
from headpond.testing.keys import MemoryKeys
from headpond.units import Work

CONFIG: Mapping[str, Mapping[str, float]] = {"chat": {"old": 1.0}}


class App:
    """An application that says one word, as it is told, after a while of a fake clock."""

    def __init__(self, name: str, clock: FakeClock) -> None:
        self.name, self.clock = name, clock
        self.takes_s = 0.1
        self.error: HeadpondError | None = None
        self.item_error: HeadpondError | None = None
        self.says: object = "word"
        self.calls: list[Call] = []

    async def answer(self, call: Call) -> Answered | HeadpondError:
        self.calls.append(call)
        self.clock.advance(self.takes_s)
        if isinstance(self.error, WorkerLost):
            raise self.error
        if self.error is not None:
            return self.error
        accepted = Accepted(bundle=f"toy@1.0.0+{self.name}", model="chat", work=Work(tokens=1))
        ended = Ended(Work(tokens=1), {"speak": self.takes_s})
        events: tuple[Event, ...] = (Output(0, self.says), Done(0, Work(tokens=1)), ended)
        if self.item_error is not None:
            events = (Failed(0, self.item_error), ended)
        return Answered(accepted=accepted, events=events)

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        raise NotImplementedError

    def comes_over(self, stream: int, lane: LaneAddress) -> None:
        """Nobody stands still here."""

    async def statuses(self) -> Sequence[ReplicaStatus]:
        card = ModelCard(
            name="chat",
            workload="toy",
            bundles=(f"toy@1.0.0+{self.name}",),
            created_s=7,
            limits={},
        )
        return [ReplicaStatus(card=card, reason=None)]

    async def asleep(self) -> bool:
        return False

    async def expositions(self) -> Mapping[str, str]:
        return {}


class Router:
    """One router of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.metrics = RolloutMetrics()
        self.backend = RoutedBackend(cluster.apps.get)
        self.shadows = Shadows(self.backend.forward, {"toy": joined})
        self.keeper = Keeper(
            RolloutLog(cluster.keys),
            self.backend,
            self.shadows.copy,
            Prober(self.backend.forward, {"echo": echo}, lambda _: "echo").ask,
            cluster.reports,
            self.metrics,
            cluster.clock,
        )

    async def ask(self, number: int, **more: object) -> HeadpondError | None:
        sent = Call(
            request_id=f"r{number}",
            tenant="t",
            workload="toy",
            model="chat",
            items=("x",),
            deadline_s=5.0,
        )
        try:
            answer = await self.backend.submit(replace(sent, **more))  # type: ignore[arg-type]
            async for _ in answer.batches():
                pass
        except HeadpondError as error:
            return error
        await answer.close()
        return None

    async def settle(self) -> None:
        await asyncio.gather(*self.shadows._under_way)
        await asyncio.sleep(0)


def joined(outputs: Sequence[object]) -> Json:
    return [output if isinstance(output, float) else str(output) for output in outputs]


class Cluster:
    """Routers over one log and the same applications."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.keys = MemoryKeys()
        self.apps = {name: App(name, self.clock) for name in ("old", "new")}
        self.routers: list[Router] = []

    async def reports(self) -> Sequence[RouterReport]:
        return [router.keeper.report() for router in self.routers]

    async def router(self) -> Router:
        router = Router(self)
        self.routers.append(router)
        await router.keeper.configure(CONFIG)
        return router

    async def set(
        self,
        share: float | None,
        guard: str = "error_rate=2%,ttft_p95=1.5x,min_requests=20",
        shadow: ShadowPlan | None = None,
    ) -> None:
        log = RolloutLog(self.keys)
        state = AliasState(name="chat", base=CONFIG["chat"], revisions=log.revisions("chat"))
        log.append(
            state.set(
                "new", datetime.now(UTC), share=share, guard=Guard.parse(guard), shadow=shadow
            )
        )
        await self.turn()

    async def turn(self) -> None:
        for router in self.routers:
            await router.keeper.turn()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster()
    yield found
    for router in found.routers:
        await router.keeper.stop()
        await router.backend.stop()


async def test_a_canary_gets_its_share_and_its_calls_are_counted(cluster: Cluster) -> None:
    router = await cluster.router()
    await cluster.set(0.2)
    for number in range(200):
        assert await router.ask(number) is None
    got = len(cluster.apps["new"].calls)
    assert 20 < got < 60
    (trial,) = router.keeper.report().trials
    assert (trial.canary.ended, trial.others.ended) == (got, 200 - got)
    assert trial.canary.measured("ttft") == trial.canary.measured("speak") == got
    await cluster.turn()
    assert RolloutLog(cluster.keys).tips()["chat"].cause == "set"
    assert 'side="canary"' in HttpMetrics(router.metrics).text()


@pytest.mark.parametrize("how", ["call", "item", "late", "lost"])
async def test_a_canary_that_breaks_its_guard_is_taken_back(cluster: Cluster, how: str) -> None:
    router = await cluster.router()
    await cluster.set(0.5)
    new = cluster.apps["new"]
    if how == "call":
        new.error = EngineFailed()
    elif how == "item":
        new.item_error = EngineFailed()
    elif how == "late":
        new.takes_s = 0.5
    else:
        new.error = WorkerLost()
    errors = [await router.ask(number) for number in range(100)]
    if how == "lost":
        assert errors == [None] * 100, "a lost call is tried on the other version"
    await cluster.turn()
    tip = RolloutLog(cluster.keys).tips()["chat"]
    assert tip.cause == "guard"
    assert tip.reason.startswith("ttft_p95" if how == "late" else "error_rate")
    before = len(new.calls)
    new.error = None
    assert [await router.ask(number) for number in range(50)] == [None] * 50
    assert len(new.calls) == before
    assert router.keeper.report().trials == []
    assert 'headpond_canary_rollbacks_total{alias="chat"} 1.0' in HttpMetrics(router.metrics).text()


async def test_refusals_of_the_callers_own_doing_do_not_count_where_both_give_them(
    cluster: Cluster,
) -> None:
    router = await cluster.router()
    await cluster.set(0.5)
    for app in cluster.apps.values():
        app.error = HeadpondError("bad input")
    for number in range(200):
        await router.ask(number)
    for app in cluster.apps.values():
        app.error = RequestCancelled()
    for number in range(200):
        await router.ask(number)
    await cluster.turn()
    assert RolloutLog(cluster.keys).tips()["chat"].cause == "set"
    (trial,) = router.keeper.report().trials
    assert trial.canary.ended + trial.others.ended == 200


async def test_routers_judge_by_what_all_of_them_have_seen(cluster: Cluster) -> None:
    one, two = await cluster.router(), await cluster.router()
    await cluster.set(0.5, guard="error_rate=2%,min_requests=20")
    cluster.apps["new"].error = EngineFailed()
    number = 0
    while len(cluster.apps["new"].calls) < 12:
        await one.ask(number := number + 1)
    await cluster.turn()
    assert RolloutLog(cluster.keys).tips()["chat"].cause == "set"
    while len(cluster.apps["new"].calls) < 24:
        await two.ask(number := number + 1)
    await cluster.turn()
    revisions = RolloutLog(cluster.keys).revisions("chat")
    assert [revision.cause for revision in revisions] == ["set", "guard"]
    assert "of 24 requests" in revisions[-1].reason
    await cluster.turn()
    assert one.keeper.report().numbers == two.keeper.report().numbers == {"chat": 2}


async def test_another_config_ends_the_rollout_of_its_aliases_only(cluster: Cluster) -> None:
    router = await cluster.router()
    await cluster.set(0.5)
    await router.keeper.configure({**CONFIG, "more": {"old": 1.0}})
    assert RolloutLog(cluster.keys).tips()["chat"].cause == "set"
    await router.keeper.configure({"chat": {"old": 2.0}})
    assert RolloutLog(cluster.keys).tips()["chat"].cause == "config"
    assert router.backend.knows("chat")
    for number in range(30):
        await router.ask(number)
    assert cluster.apps["new"].calls == []


async def test_a_shadow_gets_copies_of_batch_work_that_are_compared(cluster: Cluster) -> None:
    router = await cluster.router()
    plan = ShadowPlan(target="new", share=1.0, tolerance=0.01)
    await cluster.set(None, guard="agreement=95%,min_requests=20", shadow=plan)
    old, new = cluster.apps["old"], cluster.apps["new"]
    old.says, new.says = 1.0, 1.005
    for number in range(30):
        assert await router.ask(number) is None
        await router.settle()
    assert len(old.calls) == len(new.calls) == 30
    copy = new.calls[0]
    assert (copy.priority, copy.tenant, copy.request_id) == (Priority.BATCH, "t", "r0/shadow")
    (trial,) = router.keeper.report().trials
    assert (trial.agreed.compared, trial.agreed.agreed) == (30, 30)
    assert trial.canary.ended == 0, "copies are not the canary's calls"
    new.says = 2.0
    for number in range(30):
        await router.ask(number)
        await router.settle()
    await cluster.turn()
    tip = RolloutLog(cluster.keys).tips()["chat"]
    assert (tip.cause, tip.reason[:10]) == ("guard", "agreement:")


async def test_copies_are_dropped_first(cluster: Cluster) -> None:
    router = await cluster.router()
    await cluster.set(None, shadow=ShadowPlan(target="new", share=1.0, tolerance=0.0))
    cluster.apps["new"].error = NotReady()
    for number in range(10):
        assert await router.ask(number) is None
        await router.settle()
    cluster.apps["new"].error = EngineFailed("broken")
    await router.ask(11)
    await router.settle()
    (trial,) = router.keeper.report().trials
    assert (trial.agreed.dropped, trial.agreed.failed, trial.agreed.compared) == (10, 1, 0)
    for number in range(20, 40):
        await router.ask(number)  # more at once than there may be
    await router.settle()
    (trial,) = router.keeper.report().trials
    assert trial.agreed.dropped > 10
    await router.shadows.close()


async def test_only_calls_that_ended_well_are_copied(cluster: Cluster) -> None:
    router = await cluster.router()
    await cluster.set(None, shadow=ShadowPlan(target="new", share=1.0, tolerance=0.0))
    cluster.apps["old"].item_error = EngineFailed()
    await router.ask(1)
    cluster.apps["old"].error = EngineFailed()
    await router.ask(2)
    await router.settle()
    assert cluster.apps["new"].calls == []


async def test_a_canary_whose_answer_to_the_same_changes_is_taken_back(cluster: Cluster) -> None:
    router = await cluster.router()
    await cluster.set(0.5, guard="drift=60s")
    new = cluster.apps["new"]
    for says in ("hello", "hello", "hallo", "hello", "hallo"):
        new.says = says
        await router.keeper.probe()
        await router.keeper.probe()  # not yet
        cluster.clock.advance(60)
        await cluster.turn()
        assert RolloutLog(cluster.keys).tips()["chat"].cause == "set"
    new.error = Overloaded()
    await router.keeper.probe()
    assert len(new.calls) == 6
    assert (new.calls[0].priority, new.calls[0].workload) == (Priority.BATCH, "echo")
    new.error = None
    cluster.clock.advance(60)
    await router.keeper.probe()
    await cluster.turn()
    tip = RolloutLog(cluster.keys).tips()["chat"]
    assert (tip.cause, tip.reason[:6]) == ("guard", "drift:")
