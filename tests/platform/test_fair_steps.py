"""A tenant with many running items does not make the steps of one with few long."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headpond.call import Call, Output
from headpond.testing.clock import FakeClock
from headpond.testing.simulated import SimulatedEngine, SimulatedItem
from headpond.testing.simulation import SimulatedCall, SimulatedLoop, simulated_record


class Bench:
    """Sixteen slots; a step costs 10 ms, and 2 ms more for each item."""

    def __init__(self, weights: Mapping[str, float] | None = None, unit_s: float = 0.002) -> None:
        self.clock = FakeClock()
        self.engine = SimulatedEngine(self.clock, step_s=0.01, unit_s=unit_s)
        self.loop = SimulatedLoop(
            simulated_record(queue_limit=10_000_000, step_budget=64),
            self.engine,
            self.clock,
            symbols={"most_units": 100_000},
            max_slots=16,
            tenant_weights=weights or {},
        )
        for _ in range(20):  # what steps take is known
            self.submit("warm", 2)
            self.loop.run()

    def submit(self, tenant: str, outputs: int) -> SimulatedCall:
        return self.loop.submit(
            Call(
                request_id=tenant,
                tenant=tenant,
                workload="simulated",
                model="simulated",
                items=(SimulatedItem(name=tenant, outputs=outputs),),
                deadline_s=1e6,
                stream=True,
            )
        )

    def until_over(self, call: SimulatedCall) -> float:
        began_s = self.clock()
        while not call.over:
            self.loop.turn()
        return self.clock() - began_s


def given(call: SimulatedCall) -> int:
    return sum(isinstance(event, Output) for event in call.events)


@pytest.mark.parametrize("unit_s", [0.002, 0.02])
def test_a_few_items_are_not_slowed_to_more_than_twice_by_a_crowd(unit_s: float) -> None:
    bench = Bench(unit_s=unit_s)
    alone_s = bench.until_over(bench.submit("shy", 100))
    crowd = [bench.submit("crowd", 10_000) for _ in range(14)]
    for _ in range(20):
        bench.loop.turn()
    assert bench.until_over(bench.submit("shy", 100)) <= 2.0 * alone_s
    assert min(map(given, crowd)) >= 20 + 10


def test_the_crowd_keeps_half_of_the_time() -> None:
    bench = Bench(unit_s=0.02)
    crowd = [bench.submit("crowd", 10_000) for _ in range(14)]
    bench.loop.turn()
    before = given(crowd[0])
    took_s = bench.until_over(bench.submit("shy", 200))
    full_s = 0.01 + 15 * 0.02
    assert (given(crowd[0]) - before) * full_s >= 0.45 * took_s


def test_who_is_alone_or_even_with_others_shares_every_step() -> None:
    for tenants in (("a",), ("a", "b"), ("a", "b", "c", "d")):
        bench = Bench()
        calls = [bench.submit(tenant, 50) for tenant in tenants for _ in range(8 // len(tenants))]
        bench.loop.run()
        assert len({call.reports[0].total_s for call in calls}) == 1


def test_weights_say_who_is_a_crowd() -> None:
    bench = Bench({"large": 7.0})
    calls = [bench.submit("large", 50) for _ in range(7)] + [bench.submit("small", 50)]
    bench.loop.run()
    assert len({call.reports[0].total_s for call in calls}) == 1


def test_steps_that_are_not_long_leave_nobody_out() -> None:
    bench = Bench(unit_s=0.0001)
    crowd = [bench.submit("crowd", 60) for _ in range(14)]
    shy = bench.submit("shy", 60)
    bench.loop.run()
    assert len({call.reports[0].total_s for call in (*crowd, shy)}) == 1


def test_after_a_pause_the_crowd_goes_on_soon() -> None:
    bench = Bench()
    crowd = [bench.submit("crowd", 10_000) for _ in range(14)]
    bench.submit("shy", 10_000)
    for _ in range(20):
        bench.loop.turn()
    bench.engine._step_s = 1000.0
    bench.loop.turn()
    bench.engine._step_s = 0.01
    before = given(crowd[0])
    for _ in range(30):
        bench.loop.turn()
    assert given(crowd[0]) >= before + 2
