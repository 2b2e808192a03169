"""Refusing early what would wait too long: a slope, not a cliff."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headpond.admission.backlog import NO_WAIT, Wait
from headpond.call import Call, Claim, Output, Priority
from headpond.errors import DeadlineExceeded, Overloaded
from headpond.testing.clock import FakeClock
from headpond.testing.simulated import SimulatedEngine, SimulatedItem
from headpond.testing.simulation import SimulatedCall, SimulatedLoop, simulated_record

STEP_S = 0.01


class Bench:
    """Four slots; an item of 10 outputs takes a tenth of a second."""

    def __init__(
        self,
        *,
        wait_s: float | None = None,
        max_wait_s: float | None = None,
        unit_s: float = 0.0,
        exact: bool = False,
    ) -> None:
        self.clock = FakeClock()
        self.engine = SimulatedEngine(self.clock, step_s=STEP_S, unit_s=unit_s, granule=4)
        record = simulated_record(queue_limit=1_000_000, step_budget=64, wait_s=wait_s)
        self.loop = SimulatedLoop(
            replace(record, overload=replace(record.overload, exact=exact)),
            self.engine,
            self.clock,
            symbols={"most_units": 10_000},
            max_slots=4,
            max_wait_s=max_wait_s,
        )

    def submit(
        self,
        *,
        prompt: int = 1,
        outputs: int = 10,
        most: int | None = None,
        tenant: str = "a",
        priority: Priority = Priority.NORMAL,
        deadline_s: float = 1e6,
    ) -> SimulatedCall:
        item = SimulatedItem(name="x", prompt=prompt, outputs=outputs, most_outputs=most)
        return self.loop.submit(
            Call(
                request_id="x",
                tenant=tenant,
                workload="simulated",
                model="simulated",
                items=(item,),
                priority=priority,
                deadline_s=deadline_s,
                stream=True,
            )
        )

    def warm(self, rounds: int = 10, *, most: int | None = None) -> None:
        for _ in range(rounds):
            for _ in range(4):
                self.submit(most=most)
            self.loop.run()

    def turns(self, count: int, step_s: float) -> None:
        """Do turns whose steps take longer than others."""
        self.engine._step_s = step_s
        for _ in range(count):
            self.loop.turn()
        self.engine._step_s = STEP_S

    def fill(self) -> Iterator[SimulatedCall]:
        """Submit until refused."""
        while True:
            try:
                yield self.submit()
            except Overloaded:
                return


def waited_s(served: SimulatedCall) -> float:
    first = served.reports[0].first_output_s
    assert first is not None
    return first


def test_a_call_that_would_begin_too_late_is_refused_and_the_one_before_is_not() -> None:
    bench = Bench(wait_s=0.25)
    bench.warm()
    taken = list(bench.fill())
    bench.loop.run()
    # Two rounds of four run and end while the third waits; the fourth would begin after 0.3 s.
    assert 11 <= len(taken) <= 13
    assert max(waited_s(each) for each in taken) <= 0.25 + 0.1 + STEP_S


def test_nothing_is_refused_where_no_bound_is_declared() -> None:
    bench = Bench()
    bench.warm()
    taken = [bench.submit() for _ in range(100)]
    bench.loop.run()
    assert [report.outcome for call in taken for report in call.reports] == ["ok"] * 100


def test_free_slots_mean_no_wait() -> None:
    bench = Bench(wait_s=0.05)
    bench.warm()
    taken = list(bench.fill())
    assert len(taken) == 4
    bench.loop.turn()
    assert all(any(isinstance(event, Output) for event in each.events) for each in taken)


@pytest.mark.parametrize(("wait_s", "max_wait_s"), [(9.0, 0.25), (0.25, 9.0), (None, 0.25)])
def test_a_deployment_tightens_the_records_bound(
    wait_s: float | None, max_wait_s: float | None
) -> None:
    bench = Bench(wait_s=wait_s, max_wait_s=max_wait_s)
    bench.warm()
    assert 11 <= len(list(bench.fill())) <= 13


def test_batch_work_may_wait_but_not_beyond_its_deadline() -> None:
    bench = Bench(wait_s=0.25)
    bench.warm()
    list(bench.fill())
    for _ in range(10):
        bench.submit(priority=Priority.BATCH)
    with pytest.raises(Overloaded, match="deadline"):
        bench.submit(priority=Priority.BATCH, deadline_s=0.05)


def test_retry_after_says_when_the_same_call_is_taken() -> None:
    bench = Bench(wait_s=1.0)
    bench.warm()
    for _ in range(160):
        bench.submit(priority=Priority.BATCH)  # four seconds of work
    bench.loop.turn()
    list(bench.fill())
    for _ in range(40):
        bench.submit(priority=Priority.BATCH)
    with pytest.raises(Overloaded, match=r"at most 1\.0 s are accepted") as refused:
        bench.submit()
    retry_after_s = refused.value.retry_after_s
    assert retry_after_s is not None
    until_s = bench.clock() + retry_after_s
    while bench.clock() < until_s:
        bench.loop.turn()
    bench.submit()


def test_a_call_is_not_refused_for_the_flood_of_another_tenant() -> None:
    bench = Bench(wait_s=0.25)
    bench.warm()
    list(bench.fill())
    with pytest.raises(Overloaded):
        bench.submit()
    shy = bench.submit(tenant="shy")
    bench.loop.run()
    assert waited_s(shy) <= 0.25


def test_calls_that_end_long_before_their_maximum_do_not_count_for_it() -> None:
    bench = Bench(wait_s=0.25)
    bench.warm(40, most=400)
    count = 0
    for _ in range(100):
        try:
            bench.submit(most=400)
        except Overloaded:
            break
        count += 1
    assert 9 <= count <= 14


def test_a_crowd_of_first_phases_is_a_wait_even_with_slots_free() -> None:
    bench = Bench(wait_s=0.5, unit_s=0.001)
    for _ in range(10):
        bench.submit(prompt=400, outputs=1)
        bench.loop.run()
    bench.submit(prompt=400, outputs=1)
    bench.submit(prompt=4000, outputs=1)
    bench.loop.turn()
    with pytest.raises(Overloaded):
        bench.submit(prompt=400, outputs=1)
    bench.submit(prompt=40, outputs=1)  # shorter ones go first


@pytest.mark.parametrize("warm", [2, 40])
def test_a_pause_amid_a_step_is_not_taken_for_work(warm: int) -> None:
    bench = Bench(wait_s=0.25, unit_s=0.0001)
    bench.warm(warm)
    for _ in range(4):
        bench.submit(prompt=40)
    bench.turns(1, step_s=1000.0)
    bench.loop.run()
    assert len(list(bench.fill())) >= 8


@pytest.mark.parametrize("tiny", [1, 2, 100])
@pytest.mark.parametrize("cold_s", [STEP_S, 2.0])
def test_tiny_calls_say_nothing_of_what_a_crowd_takes(tiny: int, cold_s: float) -> None:
    bench = Bench(wait_s=0.25, unit_s=0.0001)
    for at in range(tiny):
        bench.submit(prompt=4)
        bench.turns(1, step_s=STEP_S if at else cold_s)
        bench.loop.run()
    taken = [bench.submit(prompt=200) for _ in range(4)]
    taken += [bench.submit(prompt=200) for _ in range(4)]
    bench.loop.run()
    assert max(waited_s(each) for each in taken[:4]) <= 0.25


def test_a_cold_first_step_is_not_the_pace_of_those_to_come() -> None:
    bench = Bench(wait_s=0.25, unit_s=0.0001)
    bench.submit(prompt=400)
    bench.turns(1, step_s=5.0)
    bench.loop.run()
    taken = [bench.submit(prompt=200) for _ in range(4)]
    bench.loop.run()
    assert max(waited_s(each) for each in taken) <= 0.25


def test_a_lasting_slowdown_is_learnt_within_a_few_steps() -> None:
    bench = Bench(wait_s=0.25)
    bench.warm()
    for _ in range(4):
        bench.submit(outputs=20)
    bench.turns(15, step_s=20 * STEP_S)
    taken = list(bench.fill())
    assert len(taken) <= 4


def test_overload_is_a_slope() -> None:
    """What is served in time stays flat, however much more arrives."""
    served: dict[float, float] = {}
    for load in (0.8, 1.5, 4.0):
        bench = Bench(wait_s=0.3, unit_s=0.0001)
        bench.warm()
        chance = random.Random(1)  # noqa: S311
        capacity = 4 / 0.11
        next_s = bench.clock()
        end_s = next_s + 20.0
        taken: list[SimulatedCall] = []
        refused = 0
        while bench.clock() < end_s:
            while next_s <= bench.clock():
                next_s += chance.expovariate(load * capacity)
                try:
                    taken.append(bench.submit(outputs=chance.randint(2, 18), deadline_s=2.0))
                except Overloaded:
                    refused += 1
            if bench.loop.scheduler.calls:
                bench.loop.turn()
            else:
                bench.clock.advance(0.001)
        bench.loop.run()
        late = sum(each.reports[0].outcome != "ok" for each in taken)
        in_time = sum(waited_s(each) <= 0.45 for each in taken if each.error is None)
        assert late == 0
        assert refused <= 0.01 * len(taken) or load > 1.0
        assert in_time >= 0.97 * len(taken)
        served[load] = in_time / 20.0 / capacity
    assert served[0.8] == pytest.approx(0.8, abs=0.06)
    assert served[1.5] >= 0.93
    assert served[4.0] >= 0.97 * served[1.5]


def test_what_surely_takes_too_long_is_refused_where_work_is_known_exactly() -> None:
    bench = Bench(exact=True)
    bench.warm()
    with pytest.raises(DeadlineExceeded, match="at least"):
        bench.submit(outputs=4000, deadline_s=1.0)
    assert not bench.loop.scheduler.calls
    bench.submit(outputs=4000, deadline_s=50.0)
    bench.submit(outputs=10, deadline_s=1.0)
    bench.loop.run()


def test_what_may_end_early_is_tried_whatever_its_most() -> None:
    bench = Bench()
    bench.warm()
    served = bench.submit(outputs=10, most=4000, deadline_s=1.0)
    bench.loop.run()
    assert [report.outcome for report in served.reports] == ["ok"]


def test_what_would_end_too_late_for_its_wait_is_refused() -> None:
    bench = Bench()
    bench.warm()
    for _ in range(8):
        bench.submit()
    bench.loop.turn()
    # A round runs and one waits, each of 0.1 s; then it takes as long itself.
    with pytest.raises(Overloaded, match="deadline"):
        bench.submit(deadline_s=0.25)
    served = bench.submit(deadline_s=0.5)
    bench.loop.run()
    assert [report.outcome for report in served.reports] == ["ok"]


@pytest.mark.parametrize("load", [0.8, 4.0])
def test_deadlines_alone_make_overload_a_slope(load: float) -> None:
    bench = Bench()
    bench.warm()
    chance = random.Random(2)  # noqa: S311
    capacity = 4 / 0.1
    next_s, end_s = bench.clock(), bench.clock() + 20.0
    taken: list[SimulatedCall] = []
    while bench.clock() < end_s:
        while next_s <= bench.clock():
            next_s += chance.expovariate(load * capacity)
            with contextlib.suppress(Overloaded):
                taken.append(bench.submit(deadline_s=0.6))
        if bench.loop.scheduler.calls:
            bench.loop.turn()
        else:
            bench.clock.advance(0.001)
    bench.loop.run()
    served = sum(each.reports[0].outcome == "ok" for each in taken)
    assert served >= 0.97 * len(taken)
    assert served >= 0.93 * min(load, 1.0) * capacity * 20.0


def test_it_tells_how_long_each_line_waits() -> None:
    bench = Bench(max_wait_s=9.0)
    bench.warm()
    for _ in range(12):
        bench.submit()
    bench.loop.turn()
    bench.submit(tenant="shy")
    told = bench.loop.scheduler.backlog(bench.clock())
    line, shy = (told.waits[Priority.NORMAL, tenant] for tenant in ("a", "shy"))
    assert (line.calls, shy.calls) == (8, 1)
    assert line.wait_s == pytest.approx(0.2, rel=0.3)
    assert shy.wait_s < 0.1
    assert told.takes_s == pytest.approx(0.1, rel=0.2)
    assert told.longest_s == 9.0


def test_a_call_is_refused_before_it_is_planned_when_its_turn_comes_too_late() -> None:
    bench = Bench(wait_s=0.25)
    bench.warm()
    list(bench.fill())
    bench.loop.turn()
    check = bench.loop.scheduler.check_turn
    claim = Claim(workload="simulated", tenant="a", priority=Priority.NORMAL, deadline_s=0.05)
    with pytest.raises(Overloaded, match="deadline"):
        check(claim, NO_WAIT, bench.clock())
    check(replace(claim, deadline_s=9.0), NO_WAIT, bench.clock())
    with pytest.raises(Overloaded, match="accepted"):
        check(replace(claim, deadline_s=9.0), Wait(0.4, 1), bench.clock())
    check(replace(claim, tenant="shy"), NO_WAIT, bench.clock())
