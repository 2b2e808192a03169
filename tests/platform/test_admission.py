"""Budgets, turns and waits before anything runs."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.admission.drain import DrainRate
from headpond.admission.fairness import VirtualTime
from headpond.admission.inflow import Inflow
from headpond.admission.ledger import Ledger
from headpond.admission.limits import Limits
from headpond.admission.line import Waiting
from headpond.admission.queue import PER_FREE, FairQueue
from headpond.call import Priority
from headpond.errors import InvalidRequest, Overloaded, PayloadTooLarge
from headpond.record import Dim
from headpond.testing.simulation import simulated_record


def entry(
    name: str,
    *,
    tenant: str = "a",
    weight: float = 10.0,
    priority: Priority = Priority.NORMAL,
    flow: str | None = None,
) -> Waiting[str]:
    return Waiting(tenant=tenant, priority=priority, weight=weight, content=name, flow=flow)


def queue(
    limit: float = 1e6,
    drain: DrainRate | None = None,
    tenant_weights: dict[str, float] | None = None,
) -> FairQueue[str]:
    return FairQueue(limit, drain or DrainRate(), tenant_weights or {})


def anything(content: str) -> bool:
    return bool(content)


def taken(waiting: FairQueue[str], most: int = 10**6) -> list[str]:
    names: list[str] = []
    while len(names) < most and (name := waiting.take(anything)) is not None:
        names.append(name)
    return names


class TestLedger:
    def test_growing_holds_the_new_total(self) -> None:
        ledger = Ledger(100)
        assert ledger.reserve("a", 40)
        assert ledger.reserve("a", 70)
        assert (ledger.held_bytes, ledger.free_bytes, ledger.held_by("a")) == (70, 30, 70)

    def test_the_budget_is_never_passed(self) -> None:
        ledger = Ledger(100)
        assert ledger.reserve("a", 60)
        assert not ledger.reserve("b", 41)
        assert ledger.held_by("b") == 0
        assert ledger.reserve("b", 40)
        assert not ledger.reserve("a", 61)
        assert ledger.held_by("a") == 60

    def test_releasing_twice_is_refused(self) -> None:
        ledger = Ledger(100)
        ledger.reserve("a", 60)
        assert ledger.release("a") == 60
        with pytest.raises(ValueError, match="released twice"):
            ledger.release("a")
        with pytest.raises(ValueError, match="-1 bytes"):
            ledger.reserve("a", -1)

    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=60))
    def test_it_returns_to_zero(self, reservations: list[tuple[int, int]]) -> None:
        ledger = Ledger(100)
        for holder, total in reservations:
            ledger.reserve(holder, total)
            assert 0 <= ledger.held_bytes <= ledger.budget_bytes
        for holder in range(6):
            if holder in {who for who, _ in reservations} and ledger.held_by(holder):
                ledger.release(holder)
        assert ledger.held_bytes == 0


class TestDrainRate:
    def test_nothing_is_known_before_something_ended(self) -> None:
        drain = DrainRate()
        drain.record(0.0, 5.0)
        assert (drain.per_s, drain.wait_s(10.0)) == (None, None)
        assert drain.retry_after_s(10.0) == 1.0

    def test_steady_work_is_measured_exactly(self) -> None:
        drain = DrainRate()
        for _ in range(1000):
            drain.record(5.0, 0.25)
        assert drain.per_s == pytest.approx(20.0)
        assert drain.wait_s(100.0) == pytest.approx(5.0)

    def test_new_samples_win_over_old_ones(self) -> None:
        drain = DrainRate(memory_s=10.0)
        drain.record(1000.0, 1.0)
        for _ in range(100):
            drain.record(1.0, 1.0)
        assert drain.per_s == pytest.approx(1.0, rel=0.01)

    def test_one_sample_says_nothing_and_the_first_may_be_cold(self) -> None:
        drain = DrainRate()
        drain.record(1.0, 100.0)
        assert drain.per_s is None
        drain.record(10.0, 1.0)
        assert drain.per_s == pytest.approx(10.0)

    @given(st.floats(0.01, 10.0), st.floats(1.0, 1e6), st.integers(5, 50))
    def test_a_pause_hardly_matters(self, each_s: float, pause_s: float, before: int) -> None:
        drain = DrainRate()
        for _ in range(before):
            drain.record(1.0, each_s)
        drain.record(1.0, each_s + pause_s)
        assert drain.wait_s(1.0) is not None
        assert (drain.wait_s(1.0) or 0.0) <= 3.0 * each_s

    def test_a_lasting_slowdown_is_followed(self) -> None:
        drain = DrainRate()
        for _ in range(300):
            drain.record(10.0, 0.1)
        for _ in range(20):
            drain.record(10.0, 10.0)
        assert drain.per_s == pytest.approx(1.0, rel=0.5)

    def test_work_that_is_scarce_says_only_what_it_came_to(self) -> None:
        drain = DrainRate()
        for _ in range(100):
            drain.record(1.0, 1.0, spared=3.0, full=False)
        assert drain.per_s is None
        assert drain.part == pytest.approx(0.25)
        drain.record(10.0, 1.0, spared=30.0)
        assert drain.per_s == pytest.approx(40.0)

    def test_retry_after_is_whole_seconds_within_bounds(self) -> None:
        drain = DrainRate()
        for _ in range(2):
            drain.record(10.0, 1.0)
        assert [drain.retry_after_s(weight) for weight in (0.0, 25.0, 1e12)] == [1.0, 3.0, 60.0]


class TestInflow:
    def test_what_came_lately_is_expected_to_go_on(self) -> None:
        inflow = Inflow[str](memory_s=5.0)
        for at in range(500):
            inflow.add("steady", 1.0, at / 10)
        assert inflow.within(2.0, 50.0)["steady"] == pytest.approx(20.0, rel=0.05)
        assert inflow.within(2.0, 100.0)["steady"] < 0.01
        assert inflow.within(0.0, 50.0) == {"steady": 0.0}

    def test_it_forgets_who_left(self) -> None:
        inflow = Inflow[int](memory_s=1.0)
        for at in range(2000):
            inflow.add(at, 1.0, float(at))
        assert len(inflow.within(1.0, 2000.0)) < 100


class TestVirtualTime:
    def test_shares_follow_the_weights(self) -> None:
        weights = {"a": 3.0, "b": 1.0}
        turns = VirtualTime[str](weights.__getitem__)
        turns.wake("a")
        turns.wake("b")
        served: Counter[str] = Counter()
        for _ in range(400):
            key = turns.next()
            assert key is not None
            turns.charge(key, 1.0)
            served[key] += 1
        assert served["a"] == pytest.approx(300, abs=2)
        assert turns.ahead("a", 30.0, {"a": 100.0, "b": 100.0}) == pytest.approx(40.0, abs=2)
        assert turns.ahead("b", 30.0, {"a": 100.0, "b": 100.0}) == pytest.approx(120.0, abs=2)
        assert turns.ahead("b", 30.0, {"a": 5.0}) == pytest.approx(35.0)

    def test_a_pause_saves_up_no_turns(self) -> None:
        turns = VirtualTime[str](lambda _: 1.0)
        turns.wake("a")
        for _ in range(100):
            turns.charge("a", 1.0)
        turns.wake("b")
        served = []
        for _ in range(6):
            key = turns.next()
            assert key is not None
            served.append(key)
            turns.charge(key, 1.0)
        assert served.count("b") <= 4

    def test_who_was_served_much_waits_for_the_others_to_catch_up(self) -> None:
        turns = VirtualTime[str](lambda _: 1.0)
        for key in ("a", "b"):
            turns.wake(key)
        turns.charge("a", 50.0)
        turns.sleep("a")
        assert turns.ahead("a", 0.0, {"b": 1000.0}) == 50.0
        assert turns.ahead("c", 0.0, {"b": 1000.0}) == 0.0

    def test_what_was_not_used_comes_back_as_turns(self) -> None:
        turns = VirtualTime[str](lambda _: 1.0)
        for key in ("a", "b"):
            turns.wake(key)
            turns.charge(key, 10.0)
        turns.refund("b", 9.0)
        turns.refund("unknown", 9.0)
        assert turns.next() == "b"

    def test_it_forgets_who_left(self) -> None:
        turns = VirtualTime[int](lambda _: 1.0)
        turns.wake(-1)
        for key in range(1000):
            turns.wake(key)
            turns.charge(key, 1.0)
            turns.sleep(key)
            turns.charge(-1, 1.0)
        assert len(turns._start) < 100


class TestLimits:
    def test_symbols_numbers_and_the_bundles_own_limits_bind(self) -> None:
        record = simulated_record()
        more = Dim(name="pages", summary="", limit=5, param="pages")
        request = replace(record.request, dims=(*record.request.dims, more))
        limits = Limits(
            replace(record, request=request), {"most_units": 100}, {"output_units": 7, "pages": 9}
        )
        good = {"prompt_units": 100, "output_units": 7, "pages": 5}
        limits.check_shape(good)
        for dim, param in (("prompt_units", "in"), ("output_units", "out"), ("pages", "pages")):
            with pytest.raises(InvalidRequest, match=f"{dim} is {good[dim] + 1}") as refused:
                limits.check_shape({**good, dim: good[dim] + 1})
            assert refused.value.param == param

    def test_a_call_holds_at_least_one_item_and_at_most_the_limit(self) -> None:
        limits = Limits(simulated_record(), {"most_units": 100}, {})
        limits.check_items(1)
        limits.check_items(64)
        for count in (0, 65):
            with pytest.raises(InvalidRequest, match=f"not {count}"):
                limits.check_items(count)

    def test_the_items_of_a_call_are_limited_together(self) -> None:
        record = simulated_record()
        more = Dim(name="pages", summary="", param="pages", call_limit=5)
        request = replace(record.request, dims=(*record.request.dims, more))
        limits = Limits(replace(record, request=request), {"most_units": 100}, {})
        good = {"prompt_units": 1, "output_units": 1, "pages": 5}
        limits.check_shape({**good, "pages": 9})
        limits.check_call([good])
        limits.check_call([{**good, "pages": 2}, {**good, "pages": 3}])
        with pytest.raises(PayloadTooLarge, match="pages of all items are 6") as refused:
            limits.check_call([good, {**good, "pages": 1}])
        assert refused.value.param == "pages"


class TestFairQueue:
    def test_one_tenant_is_served_in_order(self) -> None:
        waiting = queue()
        waiting.append([entry(name) for name in "abc"])
        assert taken(waiting) == ["a", "b", "c"]
        assert (len(waiting), waiting.weight) == (0, 0.0)
        assert waiting.take(anything) is None

    def test_a_flood_of_one_tenant_does_not_hold_up_another(self) -> None:
        waiting = queue()
        waiting.append([entry("flood", tenant="loud") for _ in range(100)])
        assert taken(waiting, 10) == ["flood"] * 10
        waiting.append([entry("quiet", tenant="shy")])
        assert "quiet" in taken(waiting, 2)

    def test_tenants_share_by_weighed_work_not_by_requests(self) -> None:
        waiting = queue(tenant_weights={"b": 2.0})
        waiting.append([entry("big", tenant="a", weight=100.0) for _ in range(50)])
        waiting.append([entry("small", tenant="b", weight=10.0) for _ in range(500)])
        served = Counter(taken(waiting, 210))
        assert served["small"] * 10 == pytest.approx(2 * served["big"] * 100, rel=0.1)

    def test_classes_share_and_none_starves(self) -> None:
        waiting = queue()
        for priority in Priority:
            entries = [entry(priority.name, priority=priority) for _ in range(500)]
            waiting.append(entries)
        served = Counter(taken(waiting, 420))
        assert served == pytest.approx({"URGENT": 320, "NORMAL": 80, "BATCH": 20}, abs=2)

    def test_free_work_crowds_nobody_out(self) -> None:
        waiting = queue()
        waiting.append([entry("free", tenant="a", weight=0.0) for _ in range(100)])
        waiting.append([entry("paid", tenant="b", weight=1.0)])
        assert "paid" in taken(waiting, 3)

    def test_what_does_not_fit_is_not_passed_over(self) -> None:
        waiting = queue()
        waiting.append([entry("big"), entry("small")])
        assert waiting.take(lambda name: name == "small") is None
        assert taken(waiting) == ["big", "small"]

    def test_the_dead_are_skipped_and_count_no_more(self) -> None:
        waiting = queue(limit=80.0)
        entries = [entry(name) for name in "abcd"]
        for each in entries:
            waiting.append([each])
        waiting.withdraw(entries[0])
        waiting.withdraw(entries[2])
        waiting.withdraw(entries[2])
        assert (len(waiting), waiting.weight) == (2, 20.0)
        for name in "ef":
            waiting.append([entry(name)])
        assert taken(waiting) == ["b", "d", "e", "f"]

    def test_a_tenant_whose_work_is_all_dead_has_no_turn(self) -> None:
        waiting = queue()
        dead = [entry("dead", tenant="a") for _ in range(3)]
        waiting.append(dead)
        waiting.append([entry("alive", tenant="b")])
        for each in dead:
            waiting.withdraw(each)
        assert taken(waiting) == ["alive"]
        waiting.append([entry("again", tenant="a")])
        assert taken(waiting) == ["again"]

    def test_it_is_bounded_in_work_and_says_when_to_come_back(self) -> None:
        drain = DrainRate()
        for _ in range(2):
            drain.record(10.0, 1.0)
        waiting = queue(100.0, drain)
        waiting.append([entry("a", weight=60.0)])
        with pytest.raises(Overloaded) as full:
            waiting.append([entry("b", weight=60.0), entry("c", weight=10.0)])
        assert full.value.retry_after_s == 3.0
        assert (len(waiting), waiting.weight) == (1, 60.0)
        waiting.append([entry("d", tenant="b", weight=40.0)])

    def test_a_flood_leaves_room_for_others(self) -> None:
        waiting = queue(100.0)
        for _ in range(8):
            waiting.append([entry("flood")])
        with pytest.raises(Overloaded, match="this tenant"):
            waiting.append([entry("flood")])
        waiting.append([entry("shy", tenant="shy")])
        waiting.append([entry("also shy", tenant="third")])

    @pytest.mark.parametrize(("weight", "part"), [(1.0, 0.8), (0.25, 0.5), (4.0, 16 / 17)])
    @pytest.mark.parametrize("others", [0, 50])
    def test_room_is_a_part_of_what_others_leave_by_weight(
        self, weight: float, part: float, others: int
    ) -> None:
        waiting = queue(100.0, tenant_weights={"a": weight})
        for _ in range(others):
            waiting.append([entry("x", tenant="b", weight=1.0)])
        taken_in = 0
        with contextlib.suppress(Overloaded):
            for _ in range(200):
                waiting.append([entry("x", tenant="a", weight=1.0)])
                taken_in += 1
        assert taken_in == pytest.approx(part * (100 - others), abs=1)

    @given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(1.0, 60.0)), max_size=200))
    def test_all_together_never_pass_the_bound(self, offers: list[tuple[str, float]]) -> None:
        waiting = queue(100.0)
        for tenant, weight in offers:
            with contextlib.suppress(Overloaded):
                waiting.append([entry("x", tenant=tenant, weight=weight)])
            assert waiting.weight <= 100.0 + 1e-9

    def test_an_empty_queue_takes_any_call(self) -> None:
        waiting = queue(100.0)
        waiting.append([entry("huge", weight=1000.0)])
        with pytest.raises(Overloaded) as full:
            waiting.append([entry("b", weight=1.0)])
        assert full.value.retry_after_s == 1.0

    def test_what_is_ahead_of_a_large_flow_is_what_others_get_before_its_end(self) -> None:
        waiting = queue()
        for flow, entries in (("one", 30), ("two", 5)):
            waiting.append([entry("x", weight=1.0, flow=flow) for _ in range(entries)])
        assert waiting.ahead("a", Priority.NORMAL) == pytest.approx(2.0)
        for weight, ahead in ((1.0, 2.0), (5.0, 10.0), (20.0, 25.0), (100.0, 35.0)):
            assert waiting.ahead("a", Priority.NORMAL, weight=weight) == pytest.approx(ahead)
        assert waiting.ahead("u", Priority.NORMAL, weight=20.0) == pytest.approx(20.0)
        taken(waiting, 20)
        assert waiting.ahead("a", Priority.NORMAL, weight=100.0) == pytest.approx(15.0)

    def test_what_is_ahead_of_a_tenant_does_not_count_the_flood_of_another(self) -> None:
        waiting = queue()
        waiting.append([entry("flood", tenant="loud", weight=1000.0)])
        assert waiting.ahead("shy", Priority.NORMAL) == 0.0
        waiting.append([entry("one", tenant="shy", weight=10.0)])
        assert waiting.ahead("shy", Priority.NORMAL) == pytest.approx(20.0)
        assert waiting.ahead("loud", Priority.NORMAL) == pytest.approx(1010.0)

    def test_what_others_will_add_counts_by_their_shares_only(self) -> None:
        waiting = queue()
        waiting.append([entry("one", weight=40.0)])
        tenants, classes = {"b": 1e6}, {Priority.URGENT: 1e6, Priority.BATCH: 8.0}
        assert waiting.ahead("a", Priority.NORMAL) == pytest.approx(40.0)
        assert waiting.ahead("a", Priority.NORMAL, tenants) == pytest.approx(80.0)
        assert waiting.ahead("a", Priority.NORMAL, {}, classes) == pytest.approx(40 + 160 + 8)

    def test_a_tenant_pays_for_what_it_got(self) -> None:
        waiting = queue()
        greedy = [entry("greedy", tenant="a", weight=1000.0) for _ in range(20)]
        modest = [entry("modest", tenant="b", weight=10.0) for _ in range(200)]
        waiting.append(greedy)
        waiting.append(modest)
        served: Counter[str] = Counter()
        by_name = {"greedy": iter(greedy), "modest": iter(modest)}
        for _ in range(30):
            name = waiting.take(anything)
            assert name is not None
            served[name] += 1
            waiting.settle(next(by_name[name]), 10.0)
        assert served["greedy"] == pytest.approx(served["modest"], abs=3)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.sampled_from(list(Priority)),
                st.integers(0, 30),
                st.sampled_from(["append", "append", "take", "withdraw", "settle"]),
            ),
            max_size=60,
        )
    )
    def test_nothing_is_lost_or_served_twice(
        self, script: list[tuple[str, Priority, int, str]]
    ) -> None:
        waiting = queue(limit=100.0)
        alive: dict[str, Waiting[str]] = {}
        for at, (tenant, priority, weight, action) in enumerate(script):
            if action == "append":
                new = entry(str(at), tenant=tenant, weight=weight, priority=priority)
                try:
                    waiting.append([new])
                except Overloaded:
                    free = (50.0 if priority is Priority.BATCH else 100.0) - waiting.weight
                    line = [
                        e for e in alive.values() if (e.tenant, e.priority) == (tenant, priority)
                    ]
                    own = sum(each.weight for each in line)
                    assert weight > free or own + weight > PER_FREE * (free - weight)
                else:
                    alive[str(at)] = new
            elif action == "take":
                name = waiting.take(anything)
                assert (name is None) == (not alive)
                if name is not None:
                    waiting.settle(alive.pop(name), weight)
            elif action == "withdraw" and alive:
                waiting.withdraw(alive.pop(next(iter(alive))))
            assert waiting.weight == pytest.approx(sum(each.weight for each in alive.values()))
            assert len(waiting) == len(alive)
            assert waiting.weight <= 100.0
        assert sorted(taken(waiting)) == sorted(alive)
