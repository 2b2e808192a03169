"""What a router refuses by itself, by what replicas said of their backlogs."""

from __future__ import annotations

import contextlib

import pytest

from headpond.admission.backlog import NO_WAIT, TOLD_MOST, Backlog, Wait, joined, told
from headpond.admission.outlook import UNANSWERED_LEAST, Outlook
from headpond.call import Call, Priority
from headpond.errors import Overloaded

NORMAL, BATCH = Priority.NORMAL, Priority.BATCH


def call(
    *,
    tenant: str = "a",
    priority: Priority = NORMAL,
    deadline_s: float = 60.0,
    items: int = 1,
) -> Call:
    return Call(
        request_id="r",
        tenant=tenant,
        workload="toy",
        model="toy",
        items=("x",) * items,
        priority=priority,
        deadline_s=deadline_s,
    )


def told_by(*backlogs: Backlog) -> Outlook:
    outlook = Outlook()
    outlook.tell(backlogs, 0.0)
    return outlook


def waiting(
    wait_s: float,
    calls: int = 10,
    *,
    tenant: str = "a",
    priority: Priority = NORMAL,
    takes_s: float = 0.0,
    longest_s: float | None = 2.0,
) -> Backlog:
    line = {(priority, tenant): Wait(wait_s, calls)}
    return Backlog(waits=line, takes_s=takes_s, longest_s=longest_s)


def passed(outlook: Outlook, count: int, now_s: float = 0.0) -> int:
    taken = 0
    for _ in range(count):
        try:
            outlook.send(call(), now_s)
        except Overloaded:
            continue
        taken += 1
    return taken


def test_a_wait_beyond_the_bound_is_refused_and_says_when_to_come_back() -> None:
    with pytest.raises(Overloaded) as refused:
        told_by(waiting(6.0)).send(call(), 0.0)
    assert refused.value.retry_after_s == 4.0
    told_by(waiting(2.0)).send(call(), 0.0)


def test_nobody_is_refused_where_there_is_no_bound_but_the_deadline() -> None:
    outlook = told_by(waiting(6.0, longest_s=None))
    outlook.send(call(), 0.0)
    with pytest.raises(Overloaded):
        outlook.send(call(deadline_s=3.0), 0.0)


def test_what_a_call_takes_has_to_fit_before_its_deadline_too() -> None:
    for takes_s, fits in ((0.1, True), (2.5, False)):
        outlook = told_by(waiting(3.0, takes_s=takes_s, longest_s=None))
        if fits:
            outlook.send(call(deadline_s=6.0), 0.0)
        else:
            with pytest.raises(Overloaded):
                outlook.send(call(deadline_s=6.0), 0.0)


def test_batch_work_may_wait_longer_than_others() -> None:
    told_by(waiting(6.0, priority=BATCH)).send(call(priority=BATCH), 0.0)


def test_whose_work_does_not_wait_is_let_through() -> None:
    outlook = told_by(waiting(600.0))
    outlook.send(call(tenant="b"), 0.0)
    outlook.send(call(priority=Priority.URGENT), 0.0)


def test_one_replica_that_may_serve_is_enough() -> None:
    told_by(waiting(600.0), Backlog()).send(call(), 0.0)
    told_by(waiting(600.0), waiting(1.0)).send(call(), 0.0)
    with pytest.raises(Overloaded):
        told_by(waiting(600.0), waiting(60.0)).send(call(), 0.0)


def test_about_as_many_are_let_through_as_are_done() -> None:
    # Twenty calls a second are done; what waits is at the bound.
    outlook = told_by(waiting(2.0, 40))
    at_once = passed(outlook, 100)
    later = sum(passed(outlook, 10, tenth / 10) for tenth in range(1, 11))
    assert at_once <= 6
    assert 19 <= later <= 21


def test_several_replicas_let_through_as_many_as_all_of_them_do() -> None:
    outlook = told_by(waiting(2.0, 40), waiting(2.0, 40))
    passed(outlook, 100)
    assert 38 <= sum(passed(outlook, 10, tenth / 10) for tenth in range(1, 11)) <= 42


def test_a_replica_tells_of_the_longest_lines_only() -> None:
    lines = [(NORMAL, f"t{number}", number) for number in range(1, 200)]
    waits = told(lines, lambda _, tenant: float(tenant[1:]))
    assert len(waits) == TOLD_MOST
    assert waits[NORMAL, "t199"] == Wait(199.0, 199)
    assert (NORMAL, "t1") not in waits


def test_what_waits_in_two_places_waits_for_the_slower() -> None:
    assert Wait(1.0, 10).after(NO_WAIT) == Wait(1.0, 10)
    assert Wait(1.0, 10).after(Wait(0.1, 5)) == Wait(1.5, 15)
    assert Wait(1.0, 10).after(Wait(3.0, 5)) == Wait(3.0, 15)
    before = {(NORMAL, "a"): Wait(0.1, 5), (NORMAL, "b"): Wait(3.0, 4)}
    then = {(NORMAL, "a"): Wait(1.0, 10), (BATCH, "a"): Wait(7.0, 8)}
    assert joined(before, then) == {
        (NORMAL, "a"): Wait(1.5, 15),
        (NORMAL, "b"): Wait(3.0, 4),
        (BATCH, "a"): Wait(7.0, 8),
    }


def crowded(*, per_s: int, items: int = 1) -> Outlook:
    """Return an outlook of a replica that does so many calls a second, and refuses more at 2 s."""
    outlook = told_by(Backlog())
    for number in range(2 * per_s):
        outlook.done(call(items=items), number / per_s)
    outlook.refused(call(deadline_s=2.0, items=items), 2.0)
    return outlook


@pytest.mark.parametrize("items", [1, 8])
def test_while_a_replica_refuses_about_as_many_are_let_through_as_are_done(items: int) -> None:
    outlook = crowded(per_s=50, items=items)
    sent = [0] * 4
    for step in range(400):  # a hundred a second come
        now_s = 2.0 + step / 100
        with contextlib.suppress(Overloaded):
            outlook.send(call(deadline_s=2.0, items=items), now_s)
            sent[step // 100] += 1
            if sum(sent) > 50 * (step + 1) / 100:  # what is beyond the replica's rate it refuses
                outlook.refused(call(deadline_s=2.0, items=items), now_s)
            else:
                outlook.done(call(deadline_s=2.0, items=items), now_s)
    assert 180 <= sum(sent) <= 230, sent
    assert max(sent) <= 75, sent


def test_others_than_those_that_are_refused_are_let_through() -> None:
    outlook = crowded(per_s=2, items=8)
    for _ in range(5):
        with contextlib.suppress(Overloaded):
            outlook.send(call(deadline_s=2.0, items=8), 2.0)
    with pytest.raises(Overloaded):
        outlook.send(call(deadline_s=1.0, items=9), 2.0)
    for other in (
        call(deadline_s=60.0, items=8),
        call(deadline_s=2.0, items=1),
        call(deadline_s=2.0, items=8, tenant="b"),
        call(deadline_s=2.0, items=8, priority=BATCH),
    ):
        for _ in range(20):
            outlook.send(other, 2.0)


def test_it_opens_when_nothing_was_refused_for_a_while() -> None:
    outlook = crowded(per_s=2)
    assert sum(outlook.refusal(call(deadline_s=2.0).claim, 2.0) is None for _ in range(9)) == 9
    with contextlib.suppress(Overloaded):
        for _ in range(9):
            outlook.send(call(deadline_s=2.0), 2.0)
    assert outlook.refusal(call(deadline_s=2.0).claim, 2.0) is not None
    assert outlook.refusal(call(deadline_s=2.0).claim, 3.5) is None
    for _ in range(9):
        outlook.send(call(deadline_s=2.0), 3.5)


def test_before_it_is_read_a_call_is_refused_where_all_known_sizes_are() -> None:
    outlook = crowded(per_s=2, items=8)
    with contextlib.suppress(Overloaded):
        for _ in range(9):
            outlook.send(call(deadline_s=2.0, items=8), 2.0)
    assert outlook.refusal(call(deadline_s=2.0).claim, 2.0) is not None
    outlook.done(call(deadline_s=2.0), 2.0)  # small ones are done
    assert outlook.refusal(call(deadline_s=2.0).claim, 2.0) is None


def test_where_no_replica_answers_what_was_known_stays() -> None:
    outlook = told_by(waiting(6.0))
    outlook.tell([], 0.5)
    with pytest.raises(Overloaded):
        outlook.send(call(), 0.5)
    outlook.tell([Backlog()], 1.0)
    outlook.send(call(), 1.0)


def test_a_flood_is_bounded_before_any_replica_said_a_word() -> None:
    outlook = told_by(Backlog())
    for number in range(600):  # three hundred a second are done
        outlook.done(call(), number / 300)
    short = call(deadline_s=2.0)
    taken = 0
    with contextlib.suppress(Overloaded):
        for _ in range(5000):
            outlook.send(short, 2.0)
            taken += 1
    assert UNANSWERED_LEAST <= taken <= 700
    outlook.send(call(tenant="b", deadline_s=2.0), 2.0)
    for _ in range(taken):
        outlook.answered(short)
    outlook.send(short, 2.0)


def test_a_burst_of_slow_calls_is_no_flood() -> None:
    outlook = told_by(Backlog())
    for _ in range(UNANSWERED_LEAST):
        outlook.send(call(deadline_s=2.0), 0.0)
