"""Batch work gives way to those who wait for an answer, and never starves."""

from __future__ import annotations

import pytest

from headpond.admission.drain import DrainRate
from headpond.admission.queue import FairQueue, Waiting
from headpond.call import Call, Priority
from headpond.errors import Overloaded
from headpond.scheduling.standing_aside import RECENT_S
from headpond.testing.clock import FakeClock
from headpond.testing.simulated import SimulatedEngine, SimulatedItem
from headpond.testing.simulation import SimulatedCall, SimulatedLoop, simulated_record

SLOTS = 16


class Bench:
    """A simulated loop with room for everybody."""

    def __init__(self, unit_s: float = 0.0) -> None:
        self.clock = clock = FakeClock()
        self.engine = SimulatedEngine(
            clock, step_s=0.01, unit_s=unit_s, granule=4, capacity=10_000, max_slots=16
        )
        self.loop = SimulatedLoop(
            simulated_record(step_budget=64),
            self.engine,
            clock,
            symbols={"most_units": 10_000},
            state_bytes=10_000,
            max_slots=SLOTS,
        )

    def submit(
        self, name: str, outputs: int, priority: Priority, key: str = "", prompt: int = 1
    ) -> SimulatedCall:
        item = SimulatedItem(name=name, prompt=prompt, outputs=outputs, key=key)
        return self.loop.submit(
            Call(
                request_id=name,
                tenant="a",
                workload="simulated",
                model="simulated",
                items=(item,),
                priority=priority,
                deadline_s=1e6,
            )
        )

    def until_over(self, served: SimulatedCall) -> int:
        """Do turns until a call is over; return how many steps that took."""
        before = len(self.engine.steps)
        while not served.over:
            self.loop.turn()
        return len(self.engine.steps) - before


@pytest.mark.parametrize("key", ["", "other"])
def test_batch_work_shares_few_steps_of_those_who_wait_and_all_others(key: str) -> None:
    bench = Bench()
    batch = bench.submit("batch", 200, Priority.BATCH, key)
    for _ in range(5):
        bench.loop.turn()
    online = bench.submit("online", 60, Priority.NORMAL)
    before = len(bench.engine.steps)
    steps = bench.until_over(online)
    shared = sum("batch" in step for step in bench.engine.steps[before:])
    assert 1 <= shared <= 4
    assert steps <= 60 + 5
    assert bench.until_over(batch) >= 130
    assert all("batch" in step for step in bench.engine.steps[before + steps + 1 :])


def test_the_longer_shared_steps_take_the_fewer_there_are() -> None:
    bench = Bench(unit_s=0.03)
    bench.submit("batch", 200, Priority.BATCH)
    for _ in range(5):
        bench.loop.turn()
    online = bench.submit("online", 200, Priority.NORMAL)
    before = len(bench.engine.steps)
    bench.until_over(online)
    shared = sum("batch" in step for step in bench.engine.steps[before:])
    assert 4 <= shared <= 7, "one in about 34"


def test_steps_of_batch_work_alone_are_short_while_more_is_expected() -> None:
    bench = Bench(unit_s=0.001)

    def steps_of(name: str) -> int:
        return bench.until_over(bench.submit(name, 1, Priority.BATCH, prompt=60))

    assert steps_of("before") <= 2
    bench.until_over(bench.submit("online", 1, Priority.NORMAL))
    assert steps_of("soon after") > 2
    bench.clock.advance(RECENT_S)
    assert steps_of("long after") <= 2


def test_batch_work_leaves_slots_free() -> None:
    bench = Bench()
    for number in range(SLOTS + 4):
        bench.submit(f"batch{number}", 50, Priority.BATCH)
    for _ in range(3):
        bench.loop.turn()
    online = bench.submit("online", 5, Priority.NORMAL)
    assert bench.until_over(online) <= 7
    bench.loop.run()


def test_batch_work_does_not_fill_the_queue() -> None:
    waiting: FairQueue[str] = FairQueue(100.0, DrainRate())

    def entry(priority: Priority, weight: float) -> Waiting[str]:
        return Waiting(tenant="a", priority=priority, flow="f", weight=weight, content="x")

    waiting.append([entry(Priority.BATCH, 50.0)])
    with pytest.raises(Overloaded):
        waiting.append([entry(Priority.BATCH, 1.0)])
    waiting.append([entry(Priority.NORMAL, 50.0)])
    with pytest.raises(Overloaded):
        waiting.append([entry(Priority.NORMAL, 1.0)])
