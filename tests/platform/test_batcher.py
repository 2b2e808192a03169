"""How batches are formed, without engine threads and without time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.admission.backlog import NO_WAIT, Wait
from headpond.admission.limits import Limits
from headpond.call import Call, Claim, Done, Ended, Event, Failed, Output, Priority
from headpond.errors import (
    DeadlineExceeded,
    DeclarationError,
    EngineFailed,
    InvalidRequest,
    Overloaded,
    RequestCancelled,
)
from headpond.scheduling.batcher import Batch, Batcher
from headpond.scheduling.border import attempt
from headpond.scheduling.intake import Intake
from headpond.scheduling.sequence import Delivery, LiveCall
from headpond.scheduling.standing_aside import RECENT_S
from headpond.testing.clock import FakeClock
from headpond.testing.formed import MeasuringEngine, MeasuringItem, measuring_record
from headpond.testing.simulation import simulated_record
from headpond.units import Work


def text(length: int, language: str = "", **fields: object) -> MeasuringItem:
    return MeasuringItem(text="x" * length, language=language, **fields)  # type: ignore[arg-type]


class Bench:
    """A batcher, its engine, and one batch at a time."""

    def __init__(
        self,
        *,
        budget: int = 100,
        state_bytes: int = 10_000,
        max_items: int | None = None,
        max_wait_s: float | None = None,
        queue_limit: int = 10_000,
        lanes: int = 1,
    ) -> None:
        self.clock = FakeClock()
        self.engine = MeasuringEngine(budget=budget)
        record = measuring_record(budget=1_000, queue_limit=queue_limit)
        state = record.bind({}, "uint8")
        self.batcher = Batcher(
            record,
            state,
            budget=budget,
            state_bytes=state_bytes,
            max_items=max_items,
            lanes=lanes,
            max_wait_s=max_wait_s,
        )
        self._intake = Intake(record, self.engine, Limits(record, {}, {}), bundle="m@1+0")
        self._numbers: Iterator[int] = count()
        self.delivered: dict[str, list[Event]] = {}
        self.errors: dict[str, Exception | None] = {}

    def submit(
        self,
        *items: MeasuringItem,
        name: str = "",
        tenant: str = "t",
        priority: Priority = Priority.NORMAL,
        deadline_s: float = 60.0,
        stream: bool = False,
    ) -> LiveCall:
        call = Call(
            request_id=name or f"call-{next(self._numbers)}",
            tenant=tenant,
            workload="measuring",
            model="m",
            items=items,
            priority=priority,
            deadline_s=deadline_s,
            stream=stream,
        )
        live = self._intake.open(call, self.clock())
        live.items = self._intake.plan(live, 0, len(items))
        self._intake.close(live, self.clock())
        delivery = self.batcher.offer(live, self.clock())
        self._take([delivery] if delivery is not None else [])
        return live

    def form(self, small: bool | None = None) -> Batch | None:
        batch = self.batcher.form(self.clock(), small)
        self._take(self.batcher.collect(self.clock()))
        return batch

    def finish(self, batch: Batch) -> None:
        results = attempt(self.engine.run, [item.plan for item in batch.items])
        self.batcher.advance(batch, results, self.clock())
        self._take(self.batcher.collect(self.clock()))

    def run(self, seconds: float = 0.1) -> list[list[int]]:
        """Run everything, one batch after the other; return the lengths in each batch."""
        formed = []
        while (batch := self.form()) is not None:
            formed.append([item.plan.shape["letters"] for item in batch.items])
            self.clock.advance(seconds)
            self.finish(batch)
        return formed

    def lengths(self, call: LiveCall) -> list[object]:
        outputs = [e for e in self.delivered[call.call.request_id] if isinstance(e, Output)]
        return [event.payload for event in sorted(outputs, key=lambda each: each.item)]

    def check_clean(self) -> None:
        assert not self.batcher.calls
        assert len(self.batcher.queue) == 0
        assert self.batcher.queue.weight == 0.0
        assert self.batcher.ledger.held_bytes == 0
        assert self.batcher.running_items == 0

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            name = delivery.call.call.request_id
            self.delivered.setdefault(name, []).extend(delivery.events)
            if delivery.report is not None:
                assert name not in self.errors, "a call ends once"
                self.errors[name] = delivery.error


def test_what_waits_is_one_batch_up_to_the_budget() -> None:
    bench = Bench(budget=100)
    calls = [bench.submit(text(length)) for length in (30, 30, 30, 30, 10)]
    assert bench.run() == [[30, 30, 30], [30, 10]]
    assert [bench.lengths(call) for call in calls] == [[30], [30], [30], [30], [10]]
    bench.check_clean()


def test_an_item_above_the_budget_goes_alone() -> None:
    bench = Bench(budget=100)
    bench.submit(text(500))
    bench.submit(text(10))
    assert bench.run() == [[500], [10]]


def test_a_batch_holds_so_many_items_at_most() -> None:
    bench = Bench(max_items=2)
    for _ in range(3):
        bench.submit(text(1))
    assert bench.run() == [[1, 1], [1]]


def test_only_equal_keys_share_a_batch_and_buckets_fill_up() -> None:
    bench = Bench(budget=100)
    for length, language in ((20, "de"), (21, "en"), (22, "de"), (23, "en"), (24, "de")):
        bench.submit(text(length, language))
    assert bench.run() == [[20, 22, 24], [21, 23]]
    bench.check_clean()


def test_the_results_of_a_call_come_together_and_in_order() -> None:
    bench = Bench(budget=50)
    call = bench.submit(*(text(length) for length in (40, 20, 30, 10)))
    bench.run()
    assert bench.lengths(call) == [40, 20, 30, 10]
    events = bench.delivered[call.call.request_id]
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert ended.work == Work(letters=100)
    assert list(ended.phases_s) == ["read", "queue", "count"]
    assert next(e.work for e in events if isinstance(e, Done)) == Work(letters=40)


def test_a_stream_gets_what_each_batch_gives() -> None:
    bench = Bench(budget=50)
    call = bench.submit(text(40), text(30), stream=True)
    first = bench.form()
    assert first is not None
    bench.finish(first)
    assert bench.lengths(call) == [40]
    bench.run()
    assert bench.lengths(call) == [40, 30]


def test_a_small_call_waits_for_one_batch_of_a_large_one_at_most() -> None:
    bench = Bench(budget=100, queue_limit=100_000)
    bench.submit(*(text(50) for _ in range(1000)), name="large")
    for _ in range(10):
        batch = bench.form()
        assert batch is not None
        bench.finish(batch)
    small = bench.submit(text(5))
    batch = bench.form()
    assert batch is not None
    assert small in {item.call for item in batch.items}
    bench.finish(batch)
    assert bench.lengths(small) == [5]


def test_a_large_call_is_not_starved_by_small_ones() -> None:
    bench = Bench(budget=100)
    large = bench.submit(*(text(100) for _ in range(20)), name="large")
    for _ in range(50):
        bench.submit(text(50))
        batch = bench.form()
        assert batch is not None
        bench.finish(batch)
    assert len(bench.lengths(large)) == 20


def test_tenants_share() -> None:
    bench = Bench(budget=100)
    for _ in range(40):
        bench.submit(text(50), tenant="many")
    for _ in range(4):
        bench.submit(text(50), tenant="few")
    served: Counter[str] = Counter()
    for _ in range(4):
        batch = bench.form()
        assert batch is not None
        served.update(item.call.call.tenant for item in batch.items)
        bench.finish(batch)
    assert served == {"many": 4, "few": 4}


def test_one_bad_item_fails_alone() -> None:
    bench = Bench()
    calls = [bench.submit(text(10, trouble="error" if at == 1 else None)) for at in range(3)]
    assert bench.run() == [[10, 10, 10]]
    assert [bench.lengths(call) for call in calls] == [[10], [], [10]]
    (failed,) = [e for e in bench.delivered[calls[1].call.request_id] if isinstance(e, Failed)]
    assert isinstance(failed.error, EngineFailed)
    bench.check_clean()


def test_a_batch_that_raises_is_halved_until_the_bad_item_fails_alone() -> None:
    bench = Bench()
    calls = [bench.submit(text(10 + at, trouble="run" if at == 2 else None)) for at in range(5)]
    assert bench.run() == [[10, 11, 12, 13, 14], [10, 11, 12], [13, 14], [10, 11], [12]]
    assert [bench.lengths(call) for call in calls] == [[10], [11], [], [13], [14]]
    assert bench.batcher.failed_in_a_row == 1
    bench.check_clean()


def test_a_call_that_is_late_ends_while_it_waits() -> None:
    bench = Bench(budget=10)
    first = bench.submit(text(10), deadline_s=1.0)
    second = bench.submit(text(10), deadline_s=1.0)
    batch = bench.form()
    assert batch is not None
    bench.clock.advance(2.0)
    assert bench.form() is None
    assert isinstance(bench.errors[second.call.request_id], DeadlineExceeded)
    bench.finish(batch)
    assert bench.lengths(first) == [10], "what began in time is delivered"
    bench.check_clean()


def test_a_cancelled_call_gives_back_everything() -> None:
    bench = Bench(budget=10)
    call = bench.submit(text(10), text(10))
    batch = bench.form()
    assert batch is not None
    bench.batcher.cancel(call, RequestCancelled())
    assert bench.form() is None
    assert call.call.request_id not in bench.errors, "a part of it is still being computed"
    bench.finish(batch)
    assert isinstance(bench.errors[call.call.request_id], RequestCancelled)
    assert bench.lengths(call) == []
    bench.check_clean()


def test_aborting_ends_calls_that_wait_run_or_are_to_be_run_again() -> None:
    bench = Bench(budget=20)
    calls = [bench.submit(text(10, trouble="run")) for _ in range(4)]
    broken = bench.form()
    assert broken is not None
    bench.finish(broken)
    running = bench.form()
    assert running is not None
    bench.batcher.abort(RequestCancelled())
    assert bench.form() is None
    bench.finish(running)
    assert len(bench.errors) == len(calls)
    bench.check_clean()


def test_state_bounds_what_runs_at_once() -> None:
    bench = Bench(budget=100, state_bytes=150)
    for _ in range(4):
        bench.submit(text(50))
    first, second = bench.form(), bench.form()
    assert first is not None
    assert second is not None
    assert (len(first.items), len(second.items)) == (2, 1)
    assert bench.form() is None
    bench.finish(first)
    third = bench.form()
    assert third is not None
    bench.finish(second)
    bench.finish(third)
    bench.check_clean()


class TestLanesOfTheirOwn:
    def test_small_calls_take_one_batch_at_most(self) -> None:
        bench = Bench(budget=100)
        large = bench.submit(*[text(60)] * 2)
        small = [bench.submit(text(30), text(30)), bench.submit(text(150))]
        for call in small:
            batch = bench.form(small=True)
            assert batch is not None
            assert {item.call for item in batch.items} == {call}
        assert bench.form(small=True) is None
        batch = bench.form(small=False)
        assert batch is not None
        assert [item.call for item in batch.items] == [large]

    def test_neither_takes_others_along(self) -> None:
        bench = Bench(budget=100)
        large = bench.submit(*[text(40)] * 5)
        small = [bench.submit(text(20)) for _ in range(3)]
        batch = bench.form(small=True)
        assert batch is not None
        assert [item.call for item in batch.items] == small
        batch = bench.form(small=False)
        assert batch is not None
        assert [item.call for item in batch.items] == [large] * 2

    def test_a_large_call_has_its_turns_among_any_number_of_small_ones(self) -> None:
        bench = Bench(budget=100)
        large = bench.submit(*[text(100)] * 5)
        for _ in range(12):
            bench.submit(text(100))
            for small in (True, False):
                if (batch := bench.form(small)) is not None:
                    bench.finish(batch)
        assert bench.lengths(large) == [100] * 5

    def test_a_batch_that_failed_is_halved_on_its_own_lanes(self) -> None:
        bench = Bench(budget=100)
        calls = [bench.submit(text(10)), bench.submit(text(10, trouble="run"))]
        batch = bench.form(small=True)
        assert batch is not None
        bench.finish(batch)
        assert bench.form(small=False) is None
        while (batch := bench.form(small=True)) is not None:
            bench.finish(batch)
        assert bench.lengths(calls[0]) == [10]
        bench.check_clean()


class TestBatchWork:
    def test_it_is_none_of_the_small_calls(self) -> None:
        bench = Bench()
        call = bench.submit(text(10), priority=Priority.BATCH)
        assert bench.form(small=True) is None
        batch = bench.form(small=False)
        assert batch is not None
        assert [item.call for item in batch.items] == [call]

    def test_it_gets_full_batches_on_every_lane_while_nobody_asks(self) -> None:
        bench = Bench(budget=100, lanes=2)
        bench.submit(*[text(10)] * 30, priority=Priority.BATCH)
        for _ in range(2):
            batch = bench.form(small=False)
            assert batch is not None
            assert batch.units == 100

    def test_it_goes_in_the_order_of_its_calls(self) -> None:
        bench = Bench(budget=100)
        calls = [bench.submit(*[text(10)] * 10, priority=Priority.BATCH) for _ in range(3)]
        for call in calls:
            batch = bench.form()
            assert batch is not None
            assert {item.call for item in batch.items} == {call}
            bench.finish(batch)

    def test_it_is_not_begun_while_somebody_is_served(self) -> None:
        bench = Bench(lanes=2)
        bench.submit(text(10), priority=Priority.BATCH)
        self.learn_duration(bench)
        bench.submit(text(10), priority=Priority.BATCH)
        bench.submit(text(10))
        assert bench.form(small=False) is None, "somebody waits"
        online = bench.form(small=True)
        assert online is not None
        assert bench.form(small=False) is None, "somebody is computed"
        bench.finish(online)
        assert bench.form(small=False) is not None

    def test_it_is_begun_when_it_has_stood_aside_for_long(self) -> None:
        bench = Bench(lanes=2)
        bench.submit(text(10), priority=Priority.BATCH)
        self.learn_duration(bench)
        bench.submit(text(10), priority=Priority.BATCH)
        bench.submit(text(10))
        assert bench.form(small=True) is not None
        assert bench.form(small=False) is None
        bench.clock.advance(1.8)
        assert bench.form(small=False) is None
        bench.clock.advance(0.2)
        assert bench.form(small=False) is not None

    def test_it_is_short_and_leaves_a_lane_while_more_is_expected(self) -> None:
        bench = Bench(budget=100, lanes=2)
        bench.submit(*[text(5)] * 40, priority=Priority.BATCH)
        bench.submit(text(10))
        online = bench.form(small=True)
        assert online is not None
        bench.finish(online)
        first = bench.form(small=False)
        assert first is not None
        assert first.units == 25
        assert bench.form(small=False) is None
        bench.finish(first)
        bench.clock.advance(RECENT_S)
        for _ in range(2):
            batch = bench.form(small=False)
            assert batch is not None
            assert batch.units > 25

    def test_who_waits_takes_little_of_it_along(self) -> None:
        bench = Bench(budget=100)
        bench.submit(*[text(5)] * 40, priority=Priority.BATCH)
        online = [bench.submit(text(10)), bench.submit(text(10))]
        batch = bench.form()
        assert batch is not None
        assert set(online) < {item.call for item in batch.items}
        assert batch.units <= 100 // 4 + 20

    @staticmethod
    def learn_duration(bench: Bench) -> None:
        batch = bench.form(small=False)
        assert batch is not None
        bench.clock.advance(0.1)
        bench.finish(batch)


def test_what_could_never_fit_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="200 bytes; this replica has 100"):
        Bench(state_bytes=100).submit(text(200))


def test_a_full_queue_refuses_and_says_when() -> None:
    bench = Bench(queue_limit=100)
    bench.submit(text(90))
    with pytest.raises(Overloaded) as full:
        bench.submit(text(20))
    assert full.value.retry_after_s == 1.0
    bench.run()
    bench.check_clean()


def test_what_begun_calls_have_left_is_a_wait_for_large_calls_only() -> None:
    bench = Bench(budget=10, max_wait_s=1.0)
    bench.submit(*[text(1)] * 30)
    bench.run(seconds=1.0)  # 10 letters a second
    large = [text(1)] * 16
    bench.submit(*large)
    begun = bench.form()
    bench.submit(*large)  # 6 letters are left of the other one
    with pytest.raises(Overloaded, match=r"about 2\.2 s; at most 1\.0 s") as refused:
        bench.submit(*large)
    assert refused.value.retry_after_s == 2.0
    bench.submit(text(1))
    bench.submit(*large, priority=Priority.BATCH)
    assert begun is not None
    bench.clock.advance(1.0)
    bench.finish(begun)
    bench.run(seconds=1.0)
    bench.submit(*large)
    bench.run()
    bench.check_clean()


def test_a_call_that_would_wait_too_long_is_refused_but_not_batch_work() -> None:
    bench = Bench(budget=10, max_wait_s=1.0)
    for _ in range(3):
        bench.submit(text(10))
    bench.run(seconds=1.0)
    for _ in range(2):
        bench.submit(text(10))
    with pytest.raises(Overloaded, match=r"about 2\.0 s; at most 1\.0 s"):
        bench.submit(text(10))
    with pytest.raises(Overloaded, match=r"about 2\.0 s, and the deadline 1\.5 s"):
        bench.submit(text(10), deadline_s=1.5, priority=Priority.NORMAL)
    bench.submit(text(10), priority=Priority.BATCH)
    bench.run()
    bench.check_clean()


def test_a_pause_amid_a_batch_is_not_taken_for_work() -> None:
    bench = Bench(budget=10, max_wait_s=1.0)
    for _ in range(10):
        bench.submit(text(10))
    paused = bench.form()
    assert paused is not None
    bench.run(seconds=0.1)
    bench.clock.advance(1000.0)
    bench.finish(paused)
    for _ in range(8):
        bench.submit(text(10))
    bench.run(seconds=0.1)
    bench.check_clean()


def test_tiny_calls_say_nothing_of_what_a_full_batch_takes() -> None:
    bench = Bench(budget=100, max_wait_s=1.0)
    for _ in range(5):
        bench.submit(text(1))
        bench.run(seconds=0.3)
    bench.submit(text(1))
    tiny = bench.form()
    for _ in range(8):
        bench.submit(text(20))
    assert tiny is not None
    bench.clock.advance(0.3)
    bench.finish(tiny)
    for _ in range(8):
        bench.submit(text(20))
    bench.run(seconds=0.3)
    bench.check_clean()


def test_a_lasting_slowdown_is_learnt_within_a_few_batches() -> None:
    bench = Bench(budget=10, max_wait_s=1.0)
    for seconds in (0.05, 2.0):
        for _ in range(5):
            bench.submit(text(10), priority=Priority.BATCH)
        bench.run(seconds=seconds)
    answers = [attempt(bench.submit, text(10)) for _ in range(3)]
    assert isinstance(answers[-1], Overloaded)
    bench.run()
    bench.check_clean()


def test_a_small_call_is_not_refused_for_a_large_one_of_its_own_tenant() -> None:
    bench = Bench(budget=10, max_wait_s=1.0)
    bench.submit(*(text(10) for _ in range(3)))
    bench.run(seconds=0.4)
    bench.submit(*(text(10) for _ in range(100)))
    small = bench.submit(text(10))
    bench.run()
    assert bench.lengths(small) == [10]
    bench.check_clean()


def test_an_item_that_planning_answers_needs_no_batch() -> None:
    bench = Bench()
    call = bench.submit(text(7, immediate=True))
    assert bench.lengths(call) == [7]
    mixed = bench.submit(text(5, immediate=True), text(6))
    bench.run()
    assert bench.lengths(mixed) == [5, 6]
    bench.check_clean()


def test_a_record_of_another_batching_is_refused() -> None:
    record = simulated_record()
    with pytest.raises(DeclarationError, match="not batched in formed batches"):
        Batcher(record, record.bind({"most_units": 1}, "uint8"), budget=1, state_bytes=1)


OFFERS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 60), min_size=1, max_size=8),
        st.sampled_from("ab"),
        st.sampled_from(list(Priority)),
        st.sampled_from(["", "de"]),
        st.sampled_from([None, None, None, "run", "error", "cancel"]),
    ),
    max_size=25,
)
Offer = tuple[list[int], str, Priority, str, str | None]


@given(OFFERS, st.integers(1, 3), st.booleans())
def test_whatever_comes_every_call_ends_once_and_nothing_is_held(
    offers: list[Offer], lanes: int, apart: bool
) -> None:
    bench = Bench(budget=100, state_bytes=200)
    running: list[Batch] = []

    def work() -> bool:
        batch = bench.form(small=True) or bench.form(small=False) if apart else bench.form()
        if batch is not None:
            assert len({item.plan.key for item in batch.items}) == 1
            assert batch.units <= 100 or len(batch.items) == 1
            running.append(batch)
        if running and (batch is None or len(running) == lanes):
            bench.clock.advance(0.01)
            bench.finish(running.pop(0))
            return True
        return batch is not None

    calls = []
    for offer in offers:
        calls.append(offered(bench, offer))
        work()
    while work():
        pass
    bench.check_clean()
    for live, (lengths, *_, fate) in zip(calls, offers, strict=True):
        check_ending(bench, live, lengths, fate)


def offered(bench: Bench, offer: Offer) -> LiveCall:
    lengths, tenant, priority, language, fate = offer
    trouble = fate if fate in ("run", "error") else None
    items = [text(length, language, trouble=trouble) for length in lengths]
    live = bench.submit(*items, tenant=tenant, priority=priority)
    if fate == "cancel":
        bench.batcher.cancel(live, RequestCancelled())
    return live


def check_ending(bench: Bench, live: LiveCall, lengths: list[int], fate: str | None) -> None:
    error, events = bench.errors[live.call.request_id], bench.delivered[live.call.request_id]
    if fate == "cancel":
        assert isinstance(error, RequestCancelled)
        return
    assert error is None
    if fate is None:
        assert bench.lengths(live) == lengths
    else:
        assert all(isinstance(event, Failed | Ended) for event in events)
        assert len(events) == len(lengths) + 1


def flooded(bench: Bench, calls: int, **fields: Any) -> None:
    """Measure full batches of 100 letters in 0.1 s, then let calls of 50 wait."""
    for _ in range(8):
        bench.submit(text(50))
    bench.run()
    for _ in range(calls):
        bench.submit(text(50), **fields)


def test_what_would_end_too_late_for_its_wait_is_refused() -> None:
    bench = Bench()
    flooded(bench, 10)
    # Five batches come before it: 0.5 s, which may become 0.83; one may be under way, and its own.
    with pytest.raises(Overloaded, match="deadline"):
        bench.submit(text(50), deadline_s=0.9)
    bench.submit(text(50), deadline_s=1.2, name="in time")
    bench.run()
    assert bench.errors["in time"] is None


def test_a_large_call_has_to_end_in_time() -> None:
    bench = Bench()
    flooded(bench, 2)
    large = [text(50) for _ in range(20)]  # one second of work
    with pytest.raises(Overloaded, match="deadline"):
        bench.submit(*large, deadline_s=1.15)
    bench.submit(*large, deadline_s=1.4, name="in time")
    bench.run()
    assert bench.errors["in time"] is None


def test_where_nothing_waits_a_short_deadline_is_tried() -> None:
    bench = Bench()
    flooded(bench, 0)
    bench.submit(text(50), deadline_s=0.05)


@pytest.mark.parametrize("load", [0.5, 4.0])
def test_what_is_taken_is_done_in_time_however_much_comes(load: float) -> None:
    """Deadlines alone bound the wait: overload is a slope, not a cliff."""
    bench = Bench()
    flooded(bench, 0)
    chance = Random(1)  # noqa: S311
    now_s, end_s, taken, next_s = bench.clock(), bench.clock() + 20.0, 0, bench.clock()
    while now_s < end_s:
        while next_s <= now_s:
            next_s += chance.expovariate(load * 20.0)
            with suppress(Overloaded):
                bench.submit(text(50), deadline_s=1.0)
                taken += 1
        batch = bench.form()
        bench.clock.advance(0.1 if batch else 0.01)
        now_s = bench.clock()
        if batch is not None:
            bench.finish(batch)
    bench.run()
    late = sum(isinstance(error, DeadlineExceeded) for error in bench.errors.values())
    assert late <= 0.01 * taken
    assert taken >= 0.95 * 20.0 * 20.0 * min(load, 1.0)


def test_a_call_is_refused_before_it_is_planned_when_its_turn_comes_too_late() -> None:
    bench = Bench(max_wait_s=0.46)
    flooded(bench, 9)  # 0.45 s
    claim = Claim(workload="measuring", tenant="t", priority=Priority.NORMAL, deadline_s=60.0)
    with pytest.raises(Overloaded):
        bench.batcher.check_turn(claim, Wait(0.5, 1), bench.clock())
    with pytest.raises(Overloaded):  # what is to be planned before it waits before it here, too
        bench.batcher.check_turn(claim, Wait(0.1, 4), bench.clock())
    bench.batcher.check_turn(claim, NO_WAIT, bench.clock())
    with pytest.raises(Overloaded, match="deadline"):
        bench.batcher.check_turn(replace(claim, deadline_s=0.6), NO_WAIT, bench.clock())
    bench.batcher.check_turn(replace(claim, tenant="other"), NO_WAIT, bench.clock())
    bench.batcher.check_turn(replace(claim, priority=Priority.BATCH), Wait(0.5, 1), bench.clock())


def test_it_tells_how_long_each_line_waits() -> None:
    bench = Bench(max_wait_s=9.0)
    flooded(bench, 10)
    bench.submit(text(50), tenant="other")
    told = bench.batcher.backlog(bench.clock())
    line, other = (told.waits[Priority.NORMAL, tenant] for tenant in ("t", "other"))
    assert (line.calls, other.calls) == (10, 1)
    assert line.wait_s == pytest.approx(0.55)
    assert other.wait_s == pytest.approx(0.1)
    assert told.takes_s == pytest.approx(0.2)
    assert told.longest_s == 9.0
    bench.run()
    assert not bench.batcher.backlog(bench.clock()).waits


def test_a_crowd_of_small_calls_leaves_the_lanes_for_small_ones_to_others() -> None:
    bench = Bench()
    flooded(bench, 0)
    calls = [bench.submit(text(50)) for _ in range(10)]
    assert [call.small for call in calls] == [True] * 3 + [False] * 7
    other = bench.submit(text(50), tenant="other", name="other")
    assert other.small
    bench.finish(bench.form(small=True) or Batch())
    bench.finish(bench.form(small=True) or Batch())
    assert bench.errors["other"] is None
    assert bench.form(small=True) is None
    assert len((bench.form(small=False) or Batch()).items) == 2


def test_calls_of_several_items_that_go_on_coming_are_done_in_time_too() -> None:
    bench = Bench()
    flooded(bench, 0)
    chance = Random(1)  # noqa: S311
    end_s, next_s, taken = bench.clock() + 20.0, bench.clock(), 0
    while bench.clock() < end_s:
        while next_s <= bench.clock():
            next_s += chance.expovariate(20.0)  # four times what can be done
            with suppress(Overloaded):
                bench.submit(*[text(25)] * 8, deadline_s=3.0)
                taken += 1
        batch = bench.form()
        bench.clock.advance(0.1)
        if batch is not None:
            bench.finish(batch)
    bench.run()
    late = sum(isinstance(error, DeadlineExceeded) for error in bench.errors.values())
    assert late <= 0.05 * taken
    assert taken - late >= 0.9 * 20.0 * 5.0
