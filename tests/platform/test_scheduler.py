"""The scheduler and its driver over a simulated engine and a fake clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.call import Call, Done, Ended, Failed, Output, Priority
from headpond.engine import Plan, Progress, Quantum
from headpond.errors import (
    DeadlineExceeded,
    DeclarationError,
    EngineFailed,
    InvalidRequest,
    Overloaded,
    RequestCancelled,
    WorkerLost,
)
from headpond.record import Phase, PhaseKind, Shape, WorkloadRecord
from headpond.scheduling.scheduler import Scheduler
from headpond.scheduling.sequence import Stage, worked_off
from headpond.testing.clock import FakeClock
from headpond.testing.formed import measuring_record
from headpond.testing.simulated import SimulatedEngine, SimulatedItem, SimulatedSlot, Trouble
from headpond.testing.simulation import SimulatedCall, SimulatedLoop, simulated_record
from headpond.units import Work

STEP_S = 0.01


def call(
    *items: SimulatedItem,
    tenant: str = "a",
    priority: Priority = Priority.NORMAL,
    deadline_s: float = 1e6,
    stream: bool = True,
) -> Call:
    return Call(
        request_id=items[0].name if items else "none",
        tenant=tenant,
        workload="simulated",
        model="simulated",
        items=items,
        priority=priority,
        deadline_s=deadline_s,
        stream=stream,
    )


def item(
    name: str,
    prompt: int = 1,
    outputs: int = 1,
    *,
    key: str = "",
    trouble: Trouble | None = None,
    trouble_at: int = 0,
) -> SimulatedItem:
    return SimulatedItem(
        name=name, prompt=prompt, outputs=outputs, key=key, trouble=trouble, trouble_at=trouble_at
    )


class Bench:
    """A simulated loop whose engine complains of every misuse, and more state than budgeted."""

    def __init__(
        self,
        *,
        state_bytes: int = 1000,
        max_slots: int = 8,
        granule: int = 4,
        step_budget: int = 16,
        queue_limit: int = 10_000,
        record: WorkloadRecord | None = None,
        tenant_weights: dict[str, float] | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.engine = SimulatedEngine(
            self.clock,
            step_s=STEP_S,
            granule=granule,
            capacity=state_bytes,
            max_slots=max_slots,
        )
        self.loop = SimulatedLoop(
            record
            or simulated_record(queue_limit=queue_limit, step_budget=step_budget, granule=granule),
            self.engine,
            self.clock,
            symbols={"most_units": 10_000},
            state_bytes=state_bytes,
            max_slots=max_slots,
            tenant_weights=tenant_weights or {},
        )
        self.scheduler = self.loop.scheduler

    def submit(self, *items: SimulatedItem, tenant: str = "a") -> SimulatedCall:
        return self.loop.submit(call(*items, tenant=tenant))

    def check_clean(self) -> None:
        assert self.engine.misuses == []
        assert self.engine.open_slots == []
        assert self.scheduler.residency.ledger.held_bytes == 0
        assert len(self.scheduler.residency.ledger) == 0
        assert len(self.scheduler.residency.roster) == 0
        assert self.scheduler.residency.preempted == []
        assert (len(self.scheduler.queue), self.scheduler.queue.weight) == (0, 0.0)
        assert len(self.scheduler._book._deadlines) == 0


def outputs(served: SimulatedCall, index: int = 0) -> list[object]:
    return [e.payload for e in served.events if isinstance(e, Output) and e.item == index]


def ends(served: SimulatedCall) -> list[object]:
    return [type(event) for event in served.events if not isinstance(event, Output)]


# -- one call ---------------------------------------------------------------------------------


def test_a_call_comes_back_whole_with_its_work_and_phases() -> None:
    bench = Bench(step_budget=4)
    served = bench.submit(item("x", prompt=10, outputs=3))
    assert served.live.accepted.work == Work(read=10, written=3)
    bench.clock.advance(0.5)
    bench.loop.run()
    assert outputs(served) == ["x:0", "x:1", "x:2"]
    *_, done, ended = served.events
    assert done == Done(0, Work(read=10, written=3))
    assert isinstance(ended, Ended)
    assert ended.work == Work(read=10, written=3)
    assert list(ended.phases_s) == ["parse", "queue", "read", "write"]
    assert ended.phases_s == pytest.approx(
        {"parse": 0.0, "queue": 0.5, "read": 3 * STEP_S, "write": 2 * STEP_S}
    )
    (report,) = served.reports
    assert (report.outcome, report.work, report.preemptions) == ("ok", ended.work, 0)
    assert report.total_s == pytest.approx(sum(report.phases_s.values()))
    assert report.first_output_s == pytest.approx(0.5 + 3 * STEP_S)
    assert report.gap_s == pytest.approx(STEP_S)
    bench.check_clean()


def test_a_call_that_does_not_stream_is_delivered_once() -> None:
    bench = Bench()
    served = bench.loop.submit(call(item("x", outputs=3), stream=False))
    bench.loop.turn()
    bench.loop.turn()
    assert served.events == []
    bench.loop.turn()
    assert outputs(served) == ["x:0", "x:1", "x:2"]
    assert ends(served) == [Done, Ended]


def test_items_of_a_call_run_on_their_own_and_end_together() -> None:
    bench = Bench(max_slots=2)
    served = bench.submit(item("x", outputs=1), item("y", outputs=4), item("z", outputs=2))
    bench.loop.run()
    for index, (name, count) in enumerate((("x", 1), ("y", 4), ("z", 2))):
        assert outputs(served, index) == [f"{name}:{at}" for at in range(count)]
    assert ends(served) == [Done, Done, Done, Ended]
    assert served.events[-1] == Ended(Work(read=3, written=7), served.reports[0].phases_s)
    bench.check_clean()


def test_a_failed_item_leaves_the_others_of_its_call_alone() -> None:
    bench = Bench()
    served = bench.submit(item("x", outputs=3, trouble="error", trouble_at=1), item("y", outputs=3))
    bench.loop.run()
    assert outputs(served, 0) == ["x:0"]
    assert outputs(served, 1) == ["y:0", "y:1", "y:2"]
    failed = [event for event in served.events if isinstance(event, Failed)]
    assert [(event.item, event.error.code) for event in failed] == [(0, "engine_failed")]
    assert isinstance(served.events[-1], Ended)
    (report,) = served.reports
    assert report.outcome == "engine_failed"
    assert report.work == Work(read=2, written=3)  # what x came to: its prompt
    bench.check_clean()


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        ((), InvalidRequest, "1 to 64 items, not 0"),
        ((item("x", prompt=10_001),), InvalidRequest, "prompt_units is 10001"),
        ((item("x", trouble="refuse"),), InvalidRequest, "refused"),
        ((item("x", trouble="plan"),), EngineFailed, "could not compute"),
        ((item("x"), item("big", prompt=40, outputs=70)), InvalidRequest, "110 units may hold 112"),
    ],
)
def test_a_refused_call_leaves_no_trace(
    items: tuple[SimulatedItem, ...], error: type[Exception], message: str
) -> None:
    bench = Bench(state_bytes=100)
    with pytest.raises(error, match=message):
        bench.submit(*items)
    assert bench.engine.slots == []
    bench.check_clean()


def test_what_can_never_fit_names_the_field_and_what_just_fits_runs_alone() -> None:
    bench = Bench(state_bytes=100)
    with pytest.raises(InvalidRequest) as refused:
        bench.submit(item("big", prompt=40, outputs=61))
    assert refused.value.param == "out"
    served = bench.submit(item("fits", prompt=40, outputs=60))
    bench.submit(item("small", prompt=4, outputs=4))
    bench.loop.run()
    assert len(outputs(served)) == 60
    bench.check_clean()


def test_a_full_queue_refuses_all_items_of_a_call() -> None:
    bench = Bench(max_slots=1, queue_limit=10)
    bench.submit(item("runs", outputs=50))
    bench.loop.turn()
    bench.submit(item("waits", prompt=1, outputs=4))
    with pytest.raises(Overloaded) as full:
        bench.submit(item("a", outputs=2), item("b", outputs=3))
    assert full.value.retry_after_s == 1.0
    assert (len(bench.scheduler.queue), bench.scheduler.queue.weight) == (1, 5.0)
    bench.loop.run()
    bench.check_clean()


def test_a_record_of_another_batching_is_refused() -> None:
    record = measuring_record()
    with pytest.raises(DeclarationError, match="not batched continuously"):
        Scheduler(record, record.bind({}, "uint8"), state_bytes=1, max_slots=1)


# -- composing steps ----------------------------------------------------------------------------


def test_a_long_first_phase_does_not_hold_up_the_steps_of_others() -> None:
    bench = Bench(step_budget=8)
    bench.submit(item("short", prompt=1, outputs=10))
    bench.loop.turn()
    bench.submit(item("long", prompt=40, outputs=1))
    bench.loop.run()
    both = [step for step in bench.engine.steps if "long" in step]
    assert both == [{"short": 1, "long": 7}] * 5 + [{"short": 1, "long": 5}]


def test_first_phases_are_served_in_the_order_they_started() -> None:
    bench = Bench(step_budget=8)
    for name in "abc":
        bench.submit(item(name, prompt=6))
    bench.loop.run()
    assert bench.engine.steps == [{"a": 6, "b": 2}, {"b": 4, "c": 4}, {"c": 2}]


def test_keys_take_turns() -> None:
    bench = Bench()
    for name, key in (("a", "k"), ("b", "k"), ("c", "l")):
        bench.submit(item(name, outputs=3, key=key))
    bench.loop.run()
    assert [set(step) for step in bench.engine.steps] == [{"a", "b"}, {"c"}] * 3


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_a_budget_below_the_slots_starves_neither_old_nor_new(budget: int) -> None:
    bench = Bench(step_budget=budget, max_slots=6)
    for at in range(4):
        bench.submit(item(f"old{at}", outputs=100))
    for _ in range(12):
        bench.loop.turn()
    bench.submit(item("new", prompt=5, outputs=5))
    before = len(bench.engine.steps)
    for _ in range(60):
        bench.loop.turn()
    served = Counter(name for step in bench.engine.steps[before:] for name in step)
    assert all(sum(step.values()) <= budget for step in bench.engine.steps)
    assert min(served.values()) >= 5
    assert served["new"] >= 9


# -- state ------------------------------------------------------------------------------------


def test_starting_reserves_the_first_phase_and_a_granule_not_the_maximum() -> None:
    bench = Bench(state_bytes=64, granule=4)
    for name in "abc":
        bench.submit(item(name, prompt=8, outputs=40))
    bench.loop.turn()
    assert bench.scheduler.residency.ledger.held_bytes == 3 * 12
    assert len(bench.scheduler.residency.roster) == 3


def test_the_youngest_of_the_lowest_priority_loses_its_state_and_goes_on_later() -> None:
    bench = Bench(state_bytes=64, granule=4)
    kinds = (("urgent", Priority.URGENT), ("batch1", Priority.BATCH), ("batch2", Priority.BATCH))
    served = {}
    for name, priority in kinds:
        served[name] = bench.loop.submit(call(item(name, prompt=8, outputs=40), priority=priority))
        bench.loop.turn()
    bench.loop.run()
    for name, got in served.items():
        assert outputs(got) == [f"{name}:{at}" for at in range(40)]
    assert bench.engine.preemptions > 0
    lost = {name: got.reports[0].preemptions for name, got in served.items()}
    assert lost["urgent"] == 0
    assert lost["batch2"] >= lost["batch1"]
    bench.check_clean()


def test_the_last_running_item_is_never_a_victim() -> None:
    bench = Bench()
    assert bench.scheduler.residency.roster.victim() is None
    bench.submit(item("only", outputs=5))
    bench.loop.turn()
    assert bench.scheduler.residency.roster.victim() is None
    bench.submit(item("young", outputs=5))
    bench.loop.turn()
    victim = bench.scheduler.residency.roster.victim()
    assert victim is not None
    assert victim.plan.prepared.name == "young"


def test_among_the_preempted_the_higher_priority_goes_on_first() -> None:
    bench = Bench(state_bytes=40, granule=4)
    kinds = (
        ("urgent", Priority.URGENT, 28),
        ("batch", Priority.BATCH, 20),
        ("old", Priority.NORMAL, 20),
        ("young", Priority.NORMAL, 20),
    )
    for name, priority, count in kinds:
        bench.loop.submit(call(item(name, prompt=4, outputs=count), priority=priority))
        bench.loop.turn()
    while len(bench.scheduler.residency.preempted) < 3:
        bench.loop.turn()
    before = len(bench.engine.steps)
    bench.loop.run()
    first = {
        name: min(at for at, step in enumerate(bench.engine.steps[before:]) if name in step)
        for name in ("old", "young", "batch")
    }
    assert first["old"] < first["young"] < first["batch"]
    bench.check_clean()


def test_items_rarely_come_back_only_to_be_preempted_again() -> None:
    bench = Bench(state_bytes=600, granule=4, max_slots=16, step_budget=64)
    served = [bench.submit(item(f"i{at}", prompt=20, outputs=100)) for at in range(30)]
    bench.loop.run()
    assert all(len(outputs(each)) == 100 for each in served)
    assert 0 < bench.engine.preemptions <= 45  # 65 when they come back without headroom
    bench.check_clean()


def test_a_preempted_item_goes_on_before_new_ones_start() -> None:
    bench = Bench(state_bytes=32, granule=4)
    for name in ("old", "young"):
        bench.submit(item(name, prompt=8, outputs=20))
    while not bench.engine.preemptions:
        bench.loop.turn()
    before = len(bench.engine.steps)
    new = bench.submit(item("new", prompt=1, outputs=1))
    for _ in range(3):
        bench.loop.turn()
    assert not new.live.scheduled  # it would fit, but the one that lost its state goes first
    bench.loop.run()
    first = {
        name: min(at for at, step in enumerate(bench.engine.steps[before:]) if name in step)
        for name in ("young", "new")
    }
    assert first["young"] <= first["new"]
    bench.check_clean()


def test_a_first_phase_that_was_cut_off_is_worked_off_in_full() -> None:
    bench = Bench(state_bytes=44, granule=4, step_budget=3)
    first = bench.submit(item("first", prompt=4, outputs=30))
    second = bench.submit(item("second", prompt=28, outputs=4))
    while not bench.engine.preemptions:
        bench.loop.turn()
    assert 0 < second.live.items[0].reached < 28
    bench.loop.run()
    assert outputs(first) == [f"first:{at}" for at in range(30)]
    assert outputs(second) == [f"second:{at}" for at in range(4)]
    resumed = bench.engine.steps[-16:]
    assert sum(step.get("second", 0) for step in bench.engine.steps) > 28 + 3
    assert max(step.get("second", 0) for step in resumed) == 3
    bench.check_clean()


def test_an_engine_that_goes_beyond_its_extent_fails_that_item_only() -> None:
    bench = Bench()
    liar = SimulatedItem(name="liar", prompt=2, outputs=30, most_outputs=3)
    bad = bench.submit(liar)
    good = bench.submit(item("good", outputs=10))
    bench.loop.run()
    assert ends(bad) == [Failed, Ended]
    assert outputs(good) == [f"good:{at}" for at in range(10)]
    bench.check_clean()


# -- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("poisoned", [{0}, {5}, {15}, {2, 9}, set(range(16))])
def test_poison_is_isolated_and_others_are_unharmed(poisoned: set[int]) -> None:
    bench = Bench(max_slots=16, state_bytes=10_000)
    served = [
        bench.submit(item(f"i{at}", outputs=6, trouble="step" if at in poisoned else None))
        for at in range(16)
    ]
    bench.loop.run()
    for at, got in enumerate(served):
        if at in poisoned:
            assert (outputs(got), ends(got)) == ([], [Failed, Ended])
        else:
            assert outputs(got) == [f"i{at}:{index}" for index in range(6)]
    bench.check_clean()


def test_one_poison_among_sixteen_costs_few_steps() -> None:
    bench = Bench(max_slots=16, state_bytes=10_000)
    for at in range(16):
        bench.submit(item(f"i{at}", trouble="step" if at == 11 else None))
    bench.loop.run()
    assert len(bench.engine.steps) <= 1 + 2 * 4


def test_poison_that_shows_late_costs_nobody_an_output() -> None:
    bench = Bench(step_budget=4)
    names = ["a", "b", "c", "poison", "d"]
    served = {
        name: bench.submit(
            item(name, outputs=8, trouble="step" if name == "poison" else None, trouble_at=4)
        )
        for name in names
    }
    bench.loop.run()
    for name in ("a", "b", "c", "d"):
        assert outputs(served[name]) == [f"{name}:{at}" for at in range(8)]
    assert outputs(served["poison"]) == [f"poison:{at}" for at in range(4)]
    bench.check_clean()


@pytest.mark.parametrize("trouble", ["start", "release"])
def test_an_engine_that_cannot_start_or_release_one_slot_fails_no_other(trouble: Trouble) -> None:
    bench = Bench()
    bad = bench.submit(item("bad", outputs=2, trouble=trouble))
    good = bench.submit(item("good", outputs=4))
    bench.loop.run()
    assert ends(bad) == ([Failed, Ended] if trouble == "start" else [Done, Ended])
    assert outputs(good) == [f"good:{at}" for at in range(4)]
    bench.check_clean()


def test_an_engine_that_cannot_preempt_a_slot_loses_that_item() -> None:
    bench = Bench(state_bytes=32)
    good = bench.submit(item("good", prompt=8, outputs=20))
    bad = bench.submit(item("bad", prompt=8, outputs=20, trouble="preempt"))
    bench.loop.run()
    assert ends(bad)[-2:] == [Failed, Ended]
    assert outputs(good) == [f"good:{at}" for at in range(20)]
    bench.check_clean()


class Strange(SimulatedEngine):
    """Answers for too few slots, goes or skips too far, counts pages, or says where it is."""

    mode = "short"

    def step(self, quanta: Sequence[Quantum[SimulatedSlot]]) -> list[Progress[str]]:
        progress = super().step(quanta)
        if self.mode == "short":
            return progress[:-1]
        if self.mode == "far":
            return [replace(each, units=each.units + 10) for each in progress]
        if self.mode == "leap":
            return [replace(each, skipped=each.units + 1) for each in progress]
        if self.mode == "pages":
            return [replace(each, finished=Work(pages=1)) for each in progress]
        return [replace(each, phase=self.mode) for each in progress]


@pytest.mark.parametrize("mode", ["short", "lunch", "far", "leap", "pages"])
def test_an_engine_against_its_own_protocol_fails_the_items_not_the_loop(mode: str) -> None:
    bench = Bench()
    engine = Strange(bench.clock)
    engine.mode = mode
    loop = SimulatedLoop(simulated_record(), engine, bench.clock, symbols={"most_units": 100})
    served = [loop.submit(call(item(name, outputs=3))) for name in "ab"]
    loop.run()
    assert [ends(got)[-2:] for got in served] == [[Failed, Ended]] * 2
    assert engine.open_slots == []


class Hasty(SimulatedEngine):
    """Reads all there is, whatever its quantum; says that it found nothing, or says nothing."""

    says: int | None = 0

    def step(self, quanta: Sequence[Quantum[SimulatedSlot]]) -> list[Progress[str]]:
        whole = [replace(each, units=max(each.slot.prompt_left, 1)) for each in quanta]
        return [replace(each, skipped=self.says) for each in super().step(whole)]


@pytest.mark.parametrize(("says", "read"), [(0, 40), (None, 16)])
def test_what_is_read_beyond_the_quantum_is_work_where_the_engine_says_so(
    says: int | None, read: int
) -> None:
    clock = FakeClock()
    engine = Hasty(clock)
    engine.says = says
    loop = SimulatedLoop(simulated_record(), engine, clock, symbols={"most_units": 100})
    served = loop.submit(call(item("x", prompt=40, outputs=9)))
    loop.turn()
    loop.cancel(served)
    loop.run()
    assert served.reports[0].work["read"] == read


def test_a_phase_that_lies_behind_moves_no_time() -> None:
    bench = Bench()
    engine = Strange(bench.clock)
    loop = SimulatedLoop(simulated_record(), engine, bench.clock, symbols={"most_units": 100})
    served = loop.submit(call(item("x", outputs=4)))
    for engine.mode in ("write", "read", "queue", "write"):
        loop.turn()
    assert ends(served) == [Done, Ended]
    assert served.reports[0].phases_s == pytest.approx(
        {"parse": 0.0, "queue": 0.0, "read": STEP_S, "write": 3 * STEP_S}
    )


class SlowRelease(SimulatedEngine):
    """Takes a second to let go."""

    clock: FakeClock

    def release(self, slot: SimulatedSlot) -> None:
        super().release(slot)
        self.clock.advance(1.0)


def test_what_is_left_after_the_device_counts_for_the_phase_declared_for_it() -> None:
    record = simulated_record()
    free = Phase(name="free", kind=PhaseKind.HOST)
    record = replace(record, phases=(*record.phases[:-1], free, record.phases[-1]))
    clock = FakeClock()
    engine = SlowRelease(clock)
    engine.clock = clock
    loop = SimulatedLoop(record, engine, clock, symbols={"most_units": 100})
    served = loop.submit(call(item("x"), item("y", outputs=2)))
    loop.run()
    ended = served.events[-1]
    assert isinstance(ended, Ended)
    assert ended.phases_s["free"] == pytest.approx(1.0)
    assert sum(ended.phases_s.values()) == pytest.approx(2.0 + 2 * STEP_S)


# -- cached units, drafts and answers in planning ------------------------------------------------


def test_a_cached_beginning_is_passed_in_one_step_and_costs_nothing() -> None:
    bench = Bench(step_budget=4)
    found = SimulatedItem(name="found", prompt=30, outputs=2, cached=24)
    served = bench.loop.submit(call(found))
    assert served.live.accepted.work == Work(read=6, written=2)
    bench.loop.run()
    assert [step["found"] for step in bench.engine.steps] == [4, 2, 1]
    assert (outputs(served), ends(served)) == (found.expected(), [Done, Ended])
    assert served.reports[0].work == Work(read=6, written=2)
    bench.check_clean()


@pytest.mark.parametrize("foreseen", [0, 8, 24])
def test_what_is_cached_distorts_no_rate_whatever_planning_knew(foreseen: int) -> None:
    bench = Bench(max_slots=4, queue_limit=100_000)
    for at in range(400):
        found = SimulatedItem(
            name=f"i{at}", prompt=28, outputs=4, cached=24, foreseen=foreseen, drafts=at % 3
        )
        bench.loop.submit(call(found))
    began_s = bench.clock()
    bench.loop.run()
    really = 400 * (4 + 4) / (bench.clock() - began_s)
    assert bench.scheduler.drain.per_s == pytest.approx(really, rel=0.05)
    bench.check_clean()


def test_cut_off_work_counts_what_was_computed_only() -> None:
    bench = Bench(step_budget=4, max_slots=1)
    found = SimulatedItem(name="found", prompt=40, outputs=2, cached=24, foreseen=0)
    late = bench.loop.submit(call(found, deadline_s=1.5 * STEP_S))
    bench.loop.run()
    assert late.reports[0].work == Work(read=8)
    assert bench.scheduler.drain.per_s == pytest.approx(4 / STEP_S)


def test_drafts_come_at_once_in_order_and_within_the_state_reserved() -> None:
    bench = Bench(granule=8, state_bytes=64)
    fast = SimulatedItem(name="fast", prompt=8, outputs=20, drafts=3)
    served = bench.loop.submit(call(fast))
    other = bench.submit(item("slow", prompt=8, outputs=20))
    bench.loop.run()
    assert outputs(served) == fast.expected()
    assert len(outputs(other)) == 20
    assert served.reports[0].total_s < other.reports[0].total_s
    bench.check_clean()


def test_what_planning_answers_is_delivered_at_once_and_never_runs() -> None:
    bench = Bench(max_slots=1)
    bench.submit(item("runs", outputs=50))
    bench.loop.turn()
    bench.submit(item("waits", outputs=50))
    known = [SimulatedItem(name=name, outputs=2, immediate=True) for name in "ab"]
    served = bench.loop.submit(call(*known))
    assert outputs(served, 0) == ["a:0", "a:1"]
    assert outputs(served, 1) == ["b:0", "b:1"]
    assert ends(served) == [Done, Done, Ended]
    (report,) = served.reports
    assert (report.outcome, report.work, report.first_output_s) == ("ok", Work(written=4), None)
    assert list(report.phases_s) == ["parse"]
    assert sum(report.phases_s.values()) == report.total_s
    assert bench.scheduler.finished == {"ok": 1}
    bench.loop.run()
    assert "a" not in {slot.item.name for slot in bench.engine.slots}
    bench.check_clean()


def test_a_call_may_be_answered_in_part() -> None:
    bench = Bench()
    known = SimulatedItem(name="known", outputs=2, immediate=True)
    served = bench.loop.submit(call(item("x", outputs=3), known))
    assert served.events == []
    bench.loop.turn()
    assert outputs(served, 0) == ["x:0"]
    assert outputs(served, 1) == ["known:0", "known:1"]
    bench.loop.run()
    assert ends(served) == [Done, Done, Ended]
    assert served.reports[0].work == Work(read=1, written=5)
    bench.check_clean()


# -- deadlines and cancellation -------------------------------------------------------------------


def test_a_missed_deadline_raises_after_outputs_and_never_ends_well() -> None:
    bench = Bench()
    late = bench.loop.submit(call(item("x", outputs=10), deadline_s=4.5 * STEP_S))
    bench.loop.run()
    assert outputs(late) == ["x:0", "x:1", "x:2", "x:3", "x:4"]
    assert ends(late) == []
    assert isinstance(late.error, DeadlineExceeded)
    (report,) = late.reports
    assert (report.outcome, report.work) == ("deadline_exceeded", Work(read=1, written=4))
    bench.check_clean()


def test_who_is_late_is_told_before_the_next_step() -> None:
    bench = Bench()
    bench.submit(item("stays", outputs=10))
    late = bench.loop.submit(call(item("late", outputs=10), deadline_s=1.5 * STEP_S))
    bench.loop.run()
    assert late.reports[0].total_s == pytest.approx(2 * STEP_S)
    bench.check_clean()


def test_what_finishes_in_the_step_in_which_the_deadline_passes_is_delivered() -> None:
    bench = Bench()
    just = bench.loop.submit(call(item("x", outputs=5), deadline_s=4.5 * STEP_S))
    bench.loop.run()
    assert ends(just) == [Done, Ended]
    assert just.reports[0].total_s > 4.5 * STEP_S


def test_a_late_call_that_does_not_stream_gives_nothing_at_all() -> None:
    bench = Bench()
    late = bench.loop.submit(
        call(item("x", outputs=1), item("y", outputs=10), deadline_s=0.03, stream=False)
    )
    bench.loop.run()
    assert late.events == []
    assert isinstance(late.error, DeadlineExceeded)


def test_a_call_without_time_is_refused() -> None:
    bench = Bench()
    bench.submit(item("x", outputs=3))
    bench.loop.run()  # so that a drain rate is known
    with pytest.raises(DeadlineExceeded):
        bench.loop.submit(call(item("x"), deadline_s=0.0))
    bench.check_clean()


def test_a_deadline_passes_in_the_queue_too() -> None:
    bench = Bench(max_slots=1)
    bench.submit(item("runs", outputs=20))
    late = bench.loop.submit(call(item("waits"), deadline_s=0.05))  # nothing is measured yet
    bench.loop.run()
    (report,) = late.reports
    assert isinstance(late.error, DeadlineExceeded)
    assert (report.work, report.first_output_s) == (Work(), None)
    assert report.phases_s["queue"] == pytest.approx(report.total_s)
    assert [slot.item.name for slot in bench.engine.slots] == ["runs"]
    bench.check_clean()


def test_a_cancelled_call_is_released_before_the_next_step() -> None:
    bench = Bench()
    gone = bench.submit(item("gone", outputs=50))
    stays = bench.submit(item("stays", outputs=5))
    bench.loop.turn()
    bench.loop.cancel(gone)
    bench.loop.turn()
    assert gone.reports[0].outcome == "request_cancelled"
    assert isinstance(gone.error, RequestCancelled)
    assert [slot.item.name for slot in bench.engine.open_slots] == ["stays"]
    bench.loop.cancel(gone)
    bench.loop.run()
    assert len(outputs(stays)) == 5
    assert len(gone.reports) == 1
    bench.check_clean()


def test_the_first_reason_to_end_is_the_one_that_counts() -> None:
    bench = Bench()
    late = bench.loop.submit(call(item("x", outputs=9), deadline_s=1.5 * STEP_S))
    bench.loop.turn()
    bench.loop.turn()
    bench.loop.cancel(late)
    bench.loop.run()
    assert [report.outcome for report in late.reports] == ["deadline_exceeded"]


def test_nothing_is_kept_of_calls_that_are_over() -> None:
    bench = Bench()
    for at in range(500):
        bench.loop.submit(call(item(f"i{at}"), deadline_s=1e9))
        bench.loop.run()
    assert len(bench.scheduler._book._deadlines._heap) < 100
    bench.check_clean()


def test_a_cost_that_cannot_price_a_part_takes_nobody_down() -> None:
    def cost(shape: Shape) -> Work:
        return Work(read=shape["prompt_units"], written=12 // shape["output_units"])

    bench = Bench(record=replace(simulated_record(), cost=cost))
    late = bench.loop.submit(call(item("x", prompt=40, outputs=4), deadline_s=1.5 * STEP_S))
    bench.loop.run()
    assert [report.work for report in late.reports] == [Work()]
    bench.check_clean()


def test_a_storm_of_cancellations_leaves_nothing() -> None:
    bench = Bench(max_slots=4, state_bytes=64)
    calls = [bench.submit(item(f"i{at}", prompt=3, outputs=9)) for at in range(60)]
    for _ in range(5):
        bench.loop.turn()
    for each in calls:
        bench.loop.cancel(each)
        bench.loop.cancel(each)
    bench.loop.turn()
    assert all(len(each.reports) == 1 for each in calls)
    assert not bench.scheduler.calls
    bench.check_clean()


def test_an_abort_ends_every_call_with_its_error() -> None:
    bench = Bench(max_slots=2)
    calls = [bench.submit(item(f"i{at}", outputs=9)) for at in range(5)]
    bench.loop.turn()
    bench.scheduler.abort(WorkerLost())
    bench.loop.run()
    assert {type(each.error) for each in calls} == {WorkerLost}
    assert bench.scheduler.finished == {"worker_lost": 5}
    bench.check_clean()


# -- fairness -----------------------------------------------------------------------------------


def test_a_flood_does_not_starve_a_tenant_a_class_or_a_big_request() -> None:
    bench = Bench(max_slots=2, state_bytes=200, queue_limit=100_000)
    probes = [
        bench.loop.submit(call(item("shy", outputs=2), tenant="shy")),
        bench.loop.submit(call(item("batch", outputs=2), tenant="b", priority=Priority.BATCH)),
        bench.loop.submit(call(item("big", prompt=150, outputs=20), tenant="big")),
    ]
    flood = 0
    for _ in range(1500):
        while len(bench.scheduler.queue) < 30:
            flood += 1
            urgent = call(item(f"f{flood}", outputs=3), tenant="loud", priority=Priority.URGENT)
            bench.loop.submit(urgent)
        bench.loop.turn()
        if all(probe.over for probe in probes):
            break
    assert all(probe.over for probe in probes)


def test_tenants_share_by_their_weights() -> None:
    bench = Bench(max_slots=1, tenant_weights={"gold": 3.0})
    for at in range(120):
        for tenant in ("gold", "tin"):
            bench.submit(item(f"{tenant}{at}", outputs=2), tenant=tenant)
    for _ in range(160):
        bench.loop.turn()
    served = Counter(slot.item.name.rstrip("0123456789") for slot in bench.engine.slots)
    assert served["gold"] == pytest.approx(3 * served["tin"], rel=0.1)


def test_a_tenant_is_charged_for_what_it_got_not_for_what_it_declared() -> None:
    bench = Bench(max_slots=1, queue_limit=1_000_000)
    for at in range(60):
        declared = SimulatedItem(name=f"open{at}", outputs=1, most_outputs=500)
        bench.submit(declared, tenant="open")
        bench.submit(item(f"exact{at}", outputs=1), tenant="exact")
    for _ in range(60):
        bench.loop.turn()
    served = Counter(slot.item.name.rstrip("0123456789") for slot in bench.engine.slots)
    assert served["open"] == pytest.approx(served["exact"], abs=3)


def test_work_done_fills_the_extent_in_its_order() -> None:
    shape = {"prompt": 128, "output": 64, "pages": 3}
    extent = ("prompt", "output")
    done = [worked_off(shape, extent, units) for units in (0, 100, 150, 192, 999)]
    assert [(each["prompt"], each["output"]) for each in done] == [
        (0, 0),
        (100, 0),
        (128, 22),
        (128, 64),
        (128, 64),
    ]
    assert all(each["pages"] == 3 for each in done)


# -- everything at once -----------------------------------------------------------------------------

TROUBLES: tuple[Trouble, ...] = (
    "start",
    "step",
    "error",
    "preempt",
    "release",
    "refuse",
    "plan",
)

items = st.builds(
    SimulatedItem,
    name=st.just(""),
    prompt=st.integers(1, 20),
    outputs=st.integers(1, 10),
    cached=st.sampled_from([0, 0, 5, 30]),
    foreseen=st.sampled_from([None, 0, 7]),
    drafts=st.sampled_from([0, 0, 3]),
    immediate=st.sampled_from([*[False] * 9, True]),
    key=st.sampled_from(["", "", "k", "l"]),
    trouble=st.sampled_from([*[None] * 12, *TROUBLES]),
    trouble_at=st.integers(0, 3),
)


@dataclass(frozen=True)
class Arrival:
    """A call, the turn before which it comes, and the turns after which it is cancelled."""

    items: list[SimulatedItem]
    tenant: str
    priority: Priority
    deadline_s: float
    stream: bool
    at: int
    patience: int | None


arrivals = st.builds(
    Arrival,
    items=st.lists(items, min_size=1, max_size=3),
    tenant=st.sampled_from("abc"),
    priority=st.sampled_from(list(Priority)),
    deadline_s=st.sampled_from([1e6, 1e6, 1e6, 0.015, 0.1, 0.3]),
    stream=st.booleans(),
    at=st.integers(0, 15),
    patience=st.sampled_from([None, None, None, 0, 1, 4]),
)


@dataclass
class Run:
    """What became of every arrival."""

    bench: Bench
    calls: dict[int, SimulatedCall] = field(default_factory=dict)
    refused: dict[int, Exception] = field(default_factory=dict)

    def play(self, script: Sequence[Arrival]) -> None:
        for turn in range(2000):
            for number, arrival in enumerate(script):
                if arrival.at == turn:
                    self.arrive(number, arrival)
                if (
                    number in self.calls
                    and arrival.patience is not None
                    and turn == arrival.at + arrival.patience
                ):
                    self.bench.loop.cancel(self.calls[number])
            self.bench.loop.turn()
            held = self.bench.scheduler.residency.ledger.held_bytes
            assert held <= self.bench.scheduler.residency.ledger.budget_bytes
            if turn > 15 and not self.bench.scheduler.calls:
                return
        raise AssertionError("it never ends")

    def arrive(self, number: int, arrival: Arrival) -> None:
        named = [replace(each, name=f"{number}.{at}") for at, each in enumerate(arrival.items)]
        offered = call(
            *named,
            tenant=arrival.tenant,
            priority=arrival.priority,
            deadline_s=arrival.deadline_s,
            stream=arrival.stream,
        )
        try:
            self.calls[number] = self.bench.loop.submit(offered)
        except (InvalidRequest, EngineFailed, Overloaded) as refusal:
            self.refused[number] = refusal


def check_item(served: SimulatedCall, index: int, given_item: SimulatedItem, name: str) -> None:
    expected = [f"{name}:{at}" for at in range(given_item.outputs)]
    got = outputs(served, index)
    assert got == expected[: len(got)]
    closing = [e for e in served.events if isinstance(e, Done | Failed) and e.item == index]
    if served.error is not None:
        assert len(closing) <= 1
        return
    assert len(closing) == 1
    if isinstance(closing[0], Done):
        assert got == expected
        read = 0 if given_item.immediate else given_item.read
        assert closing[0].work == Work(read=read, written=given_item.outputs)
    else:
        assert given_item.trouble in {"start", "step", "error", "preempt"}


def check_call(served: SimulatedCall, arrival: Arrival, number: int) -> None:
    (report,) = served.reports
    assert sum(report.phases_s.values()) == pytest.approx(report.total_s)
    assert all(each.stage is Stage.OVER for each in served.live.items)
    for index, given_item in enumerate(arrival.items):
        check_item(served, index, given_item, f"{number}.{index}")
    if served.error is None:
        assert [type(event) for event in served.events].count(Ended) == 1
        assert isinstance(served.events[-1], Ended)
        assert report.total_s <= arrival.deadline_s + STEP_S + 1e-9
    else:
        assert not any(isinstance(event, Ended) for event in served.events)
        assert arrival.stream or served.events == []
        assert isinstance(served.error, DeadlineExceeded | RequestCancelled)
        assert report.outcome == served.error.code
    if isinstance(served.error, DeadlineExceeded):
        assert report.total_s >= arrival.deadline_s
    if isinstance(served.error, RequestCancelled):
        assert arrival.patience is not None


@settings(max_examples=250, deadline=None)
@given(
    script=st.lists(arrivals, min_size=1, max_size=12),
    state_bytes=st.sampled_from([36, 64, 120, 2000]),
    max_slots=st.sampled_from([1, 2, 3, 8]),
    granule=st.sampled_from([1, 4]),
    step_budget=st.sampled_from([1, 2, 5, 16]),
    queue_limit=st.sampled_from([40, 10_000]),
)
def test_whatever_comes_nothing_is_lost_served_twice_or_left_behind(
    script: list[Arrival],
    state_bytes: int,
    max_slots: int,
    granule: int,
    step_budget: int,
    queue_limit: int,
) -> None:
    bench = Bench(
        state_bytes=state_bytes,
        max_slots=max_slots,
        granule=granule,
        step_budget=step_budget,
        queue_limit=queue_limit,
    )
    run = Run(bench)
    run.play(script)
    assert run.calls.keys() | run.refused.keys() == set(range(len(script)))
    for number, served in run.calls.items():
        check_call(served, script[number], number)
    for number, refusal in run.refused.items():
        troubles = {each.trouble for each in script[number].items}
        assert troubles & {"refuse", "plan"} or isinstance(refusal, Overloaded)
    assert sum(bench.scheduler.finished.values()) == len(run.calls)
    bench.check_clean()


# -- a workload nobody knows ---------------------------------------------------------------------


@dataclass(frozen=True)
class Countdown:
    """A toy item: count down from a number."""

    number: int


class CountdownEngine:
    """A workload declared in a test: no first phase, integers as outputs."""

    def plan(self, given_item: Countdown, namespace: str) -> Plan[int]:
        return Plan(
            shape={"prompt_units": 0, "output_units": given_item.number, "cached_units": 0},
            prepared=given_item.number,
        )

    def start(self, plan: Plan[int]) -> list[int]:
        return [plan.prepared, 0]

    def step(self, quanta: Sequence[Quantum[list[int]]]) -> list[Progress[int]]:
        progress = []
        for quantum in quanta:
            quantum.slot[0] -= 1
            quantum.slot[1] += 1
            left, said = quantum.slot
            progress.append(
                Progress(outputs=(left,), finished=None if left else Work(read=1, written=said))
            )
        return progress

    def preempt(self, slot: list[int]) -> int:
        return slot[1]

    def release(self, slot: list[int]) -> None:
        slot.clear()


def test_a_workload_declared_here_runs_with_no_change_in_the_platform() -> None:
    clock = FakeClock()
    loop = SimulatedLoop(
        simulated_record(), CountdownEngine(), clock, symbols={"most_units": 9}, state_bytes=100
    )
    served = loop.submit(replace(call(item("toy")), items=(Countdown(3), Countdown(5))))
    loop.run()
    assert outputs(served, 0) == [2, 1, 0]
    assert outputs(served, 1) == [4, 3, 2, 1, 0]
    assert ends(served) == [Done, Done, Ended]
