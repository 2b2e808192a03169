"""Costly plans wait for a thread by turns, and hopeless ones are never made."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from types import MappingProxyType

import pytest

from headpond.admission.backlog import Wait
from headpond.admission.limits import Limits
from headpond.call import Call, Priority
from headpond.engine import Plan
from headpond.errors import DeadlineExceeded, InvalidRequest, Overloaded
from headpond.scheduling.intake import Intake
from headpond.scheduling.planner import Planner
from headpond.scheduling.sequence import LiveCall
from headpond.testing.formed import MeasuringEngine, MeasuringItem, measuring_record

RECORD = measuring_record()


class SlowEngine(MeasuringEngine):
    """Plans on a thread, when the test lets it, and remembers in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.may_plan = threading.Semaphore(0)
        self.planned: list[str] = []

    def plan(self, item: MeasuringItem, namespace: str) -> Plan[MeasuringItem]:
        until_s = time.thread_time() + 1e-3  # costly enough for a thread
        while time.thread_time() < until_s:
            pass
        self.may_plan.acquire()
        self.planned.append(item.text)
        return super().plan(item, namespace)


class Bench:
    """A planner with one thread."""

    def __init__(self) -> None:
        self.engine = SlowEngine()
        self.intake = Intake(RECORD, self.engine, Limits(RECORD, {}, {}), bundle="m@1+0")
        self.planner = Planner(
            self.intake, time.monotonic, threads=1, tenant_weights=MappingProxyType({})
        )
        self.asked_s: list[float] = []
        self.refusals: dict[str, list[Overloaded | None]] = {}

    def begin(
        self,
        *texts: str,
        tenant: str = "a",
        priority: Priority = Priority.NORMAL,
        deadline_s: float = 60.0,
    ) -> asyncio.Task[LiveCall]:
        """Let a call be planned; its name is its first text."""
        items = tuple(
            MeasuringItem(text=text, trouble="refuse" if text == "bad" else None) for text in texts
        )
        call = Call(
            request_id="r",
            tenant=tenant,
            workload="measuring",
            model="m",
            items=items,
            priority=priority,
            deadline_s=deadline_s,
        )
        live = self.intake.open(call, time.monotonic())

        def check(before: Wait) -> None:
            self.asked_s.append(before.wait_s)
            refusals = self.refusals.get(texts[0])
            refusal = refusals.pop(0) if refusals else None
            if refusal is not None:
                raise refusal

        async def plan() -> LiveCall:
            await self.planner.plan(live, check)
            return live

        return asyncio.create_task(plan())


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.engine.may_plan.release(10_000)
    made.planner.close()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_flood_of_plans_does_not_hold_up_another_tenant(bench: Bench) -> None:
    flood = [bench.begin(f"flood {number}") for number in range(20)]
    await settle()
    shy = bench.begin("shy", tenant="shy")
    urgent = bench.begin("urgent", priority=Priority.URGENT)
    await settle()
    bench.engine.may_plan.release(100)
    await asyncio.gather(*flood, shy, urgent)
    assert {"shy", "urgent"} <= set(bench.engine.planned[:4])


async def test_a_large_call_lets_others_between_and_keeps_its_order(bench: Bench) -> None:
    texts = [f"{number:03}" for number in range(200)]
    large = bench.begin(*texts)
    await settle()
    small = bench.begin("small")
    await settle()
    bench.engine.may_plan.release(1000)
    planned = (await large).items
    await small
    assert [item.plan.prepared.text for item in planned] == texts
    assert bench.engine.planned.index("small") < 100


async def test_what_is_hopeless_on_arrival_is_never_planned(bench: Bench) -> None:
    bench.refusals["hopeless"] = [Overloaded("too late")]
    with pytest.raises(Overloaded, match="too late"):
        await bench.begin("hopeless")
    assert not bench.engine.planned


async def test_what_became_hopeless_while_it_waited_is_not_planned(bench: Bench) -> None:
    bench.refusals["hopeless"] = [None, Overloaded("too late by now")]
    first, second, third = bench.begin("first"), bench.begin("hopeless"), bench.begin("third")
    await settle()
    bench.engine.may_plan.release(100)
    with pytest.raises(Overloaded, match="by now"):
        await second
    await asyncio.gather(first, third)
    assert bench.engine.planned == ["first", "third"]


async def test_who_left_or_is_late_is_not_planned(bench: Bench) -> None:
    first, gone, last = bench.begin("first"), bench.begin("gone"), bench.begin("last")
    late = bench.begin("late", deadline_s=0.01)
    await settle()
    gone.cancel()
    with pytest.raises(DeadlineExceeded):
        await late
    bench.engine.may_plan.release(100)
    await asyncio.gather(first, last)
    assert bench.engine.planned == ["first", "last"]
    assert not bench.planner.waits


async def test_a_plan_that_fails_fails_its_call_alone(bench: Bench) -> None:
    bad, good = bench.begin("x", "bad", "y"), bench.begin("good")
    bench.engine.may_plan.release(100)
    with pytest.raises(InvalidRequest):
        await bad
    assert len((await good).items) == 1


async def test_more_calls_than_may_wait_are_refused_but_not_another_tenants(bench: Bench) -> None:
    begun = [bench.begin(f"flood {number}") for number in range(400)]
    await settle()
    refused = [each for each in begun if each.done() and isinstance(each.exception(), Overloaded)]
    assert 150 <= len(refused) <= 250
    shy = bench.begin("shy", tenant="shy")
    bench.engine.may_plan.release(1000)
    await shy
    assert bench.engine.planned.index("shy") <= 3
    await asyncio.gather(*begun, return_exceptions=True)


async def test_it_knows_how_long_plans_wait(bench: Bench) -> None:
    bench.engine.may_plan.release(40)
    await asyncio.gather(*(bench.begin(f"warm {number}") for number in range(40)))
    begun = [bench.begin(f"x {number}") for number in range(20)]
    await settle()
    ((line, wait),) = bench.planner.waits.items()
    assert line == (Priority.NORMAL, "a")
    assert wait.calls == 19
    assert wait.wait_s >= 19 * 1e-3
    assert bench.planner.wait(Priority.NORMAL, "shy").wait_s < wait.wait_s / 5
    assert bench.asked_s[-1] > bench.asked_s[-10] > 0.0
    bench.engine.may_plan.release(100)
    await asyncio.gather(*begun)
