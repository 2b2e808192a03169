"""Ten thousand random requests through the scheduler and its driver."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from headpond.call import Call, Done, Ended, Failed, Output, Priority
from headpond.engine import Progress, Quantum
from headpond.errors import (
    DeadlineExceeded,
    HeadpondError,
    InvalidRequest,
    Overloaded,
    RequestCancelled,
)
from headpond.scheduling.sequence import Stage
from headpond.testing.clock import FakeClock
from headpond.testing.simulated import SimulatedEngine, SimulatedItem, SimulatedSlot, Trouble
from headpond.testing.simulation import SimulatedCall, SimulatedLoop, simulated_record

REQUESTS = 10_000
STEP_S, UNIT_S = 0.004, 0.0002
GRANULE, BUDGET, SLOTS = 16, 128, 16
STATE = 1600
"""Enough for about ten of the requests that sixteen slots would hold."""

QUEUE_LIMIT = 20_000
WAIT_S = 4.0
STARVED_S = 60.0
TENANTS = {"gold": 4.0, "tin": 1.0, "lead": 1.0}
TROUBLES: tuple[Trouble, ...] = ("start", "step", "error", "preempt", "release", "refuse", "plan")


class MoodyEngine(SimulatedEngine):
    """Fails a whole step now and then for no reason, and pauses now and then."""

    def __init__(self, clock: FakeClock, chance: random.Random) -> None:
        super().__init__(
            clock,
            step_s=STEP_S,
            unit_s=UNIT_S,
            granule=GRANULE,
            capacity=STATE,
            max_slots=SLOTS,
        )
        self.time = clock
        self.chance = chance
        self.failed = 0

    def step(self, quanta: Sequence[Quantum[SimulatedSlot]]) -> list[Progress[str]]:
        mood = self.chance.random()
        if mood < 0.002 and len(quanta) > 1:
            self.failed += 1
            raise RuntimeError("in a mood")
        if mood > 0.999:
            self.time.advance(0.25)
        return super().step(quanta)


@dataclass(kw_only=True)
class Request:
    """One random request and what became of it."""

    call: Call
    at_s: float
    leaves_s: float | None
    served: SimulatedCall | None = None
    refusal: HeadpondError | None = None
    left: bool = False


def random_item(chance: random.Random, name: str) -> SimulatedItem:
    shared = chance.random() < 0.3
    prompt = 96 + chance.randint(1, 40) if shared else chance.choice((1, 5, 20, 60, 200, 700))
    outputs = chance.choice((1, 2, 5, 10, 30, 80))
    return SimulatedItem(
        name=name,
        prompt=prompt,
        outputs=outputs,
        most_outputs=outputs * chance.choice((1, 1, 1, 3)),
        cached=96 if shared else 0,
        foreseen=chance.choice((None, 0)),
        drafts=chance.choice((0, 0, 0, 4)),
        immediate=chance.random() < 0.03,
        key=chance.choices(("", "k", "l"), (8, 1, 1))[0],
        trouble=chance.choice(TROUBLES) if chance.random() < 0.03 else None,
        trouble_at=chance.randint(0, 3),
    )


def random_requests(chance: random.Random) -> list[Request]:
    """Draw arrivals in waves: from half of what can be served to three times as much."""
    requests: list[Request] = []
    at_s = 1000.0
    for number in range(REQUESTS):
        wave = (0.5, 1.0, 3.0, 0.7)[number // 250 % 4]
        if chance.random() > 0.1:  # others come at once with the one before
            at_s += chance.expovariate(wave * 25.0)
        items = [
            random_item(chance, f"{number}.{at}") for at in range(chance.choice((1, 1, 1, 1, 3)))
        ]
        call = Call(
            request_id=str(number),
            tenant=chance.choice(list(TENANTS)),
            workload="simulated",
            model="simulated",
            items=tuple(items),
            priority=chance.choices(list(Priority), (2, 6, 2))[0],
            deadline_s=chance.choice((1e6, 1e6, 1e6, 30.0, 3.0, 0.3)),
            stream=chance.random() < 0.7,
        )
        leaves_s = at_s + chance.expovariate(1.0) if chance.random() < 0.15 else None
        requests.append(Request(call=call, at_s=at_s, leaves_s=leaves_s))
    return requests


@dataclass
class World:
    """The loop, the time, and everybody who comes and goes."""

    seed: int
    clock: FakeClock = field(default_factory=FakeClock)
    longest_turn_s: float = 0.0

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)  # noqa: S311
        self.requests = random_requests(chance)
        self.engine = MoodyEngine(self.clock, chance)
        self.loop = SimulatedLoop(
            simulated_record(
                queue_limit=QUEUE_LIMIT,
                step_budget=BUDGET,
                granule=GRANULE,
                wait_s=WAIT_S,
                gap_s=0.1,
            ),
            self.engine,
            self.clock,
            symbols={"most_units": 10_000},
            state_bytes=STATE,
            max_slots=SLOTS,
            tenant_weights=TENANTS,
        )

    def play(self) -> None:
        coming = iter(self.requests)
        following = next(coming, None)
        leaving: list[Request] = []
        while following is not None or self.loop.scheduler.calls:
            while following is not None and following.at_s <= self.clock():
                self.arrive(following)
                if following.leaves_s is not None and following.served is not None:
                    leaving.append(following)
                following = next(coming, None)
            leaving = self.leave(leaving)
            if self.loop.scheduler.calls:
                self.turn()
            elif following is not None:
                self.clock.advance(max(following.at_s - self.clock(), 0.0))

    def turn(self) -> None:
        began_s = self.clock()
        self.loop.turn()
        self.longest_turn_s = max(self.longest_turn_s, self.clock() - began_s)
        ledger = self.loop.scheduler.residency.ledger
        assert ledger.held_bytes <= ledger.budget_bytes

    def arrive(self, request: Request) -> None:
        try:
            request.served = self.loop.submit(request.call)
        except HeadpondError as refusal:
            request.refusal = refusal

    def leave(self, leaving: list[Request]) -> list[Request]:
        staying = []
        for request in leaving:
            if request.leaves_s is None or request.leaves_s > self.clock():
                staying.append(request)
            elif request.served is not None:
                request.left = not request.served.over
                self.loop.cancel(request.served)
        return staying


def check_refusal(request: Request) -> None:
    items = [item for item in request.call.items if isinstance(item, SimulatedItem)]
    if any(item.trouble in {"refuse", "plan"} for item in items):
        return
    assert isinstance(request.refusal, Overloaded | InvalidRequest), request.refusal
    if isinstance(request.refusal, InvalidRequest):
        assert max(item.prompt + (item.most_outputs or 0) for item in items) > STATE - GRANULE
    else:
        assert request.refusal.retry_after_s is not None
        assert 1.0 <= request.refusal.retry_after_s <= 60.0


def check_item(request: Request, served: SimulatedCall, index: int, item: SimulatedItem) -> None:
    got = [e.payload for e in served.events if isinstance(e, Output) and e.item == index]
    closing = [e for e in served.events if isinstance(e, Done | Failed) and e.item == index]
    assert got == item.expected()[: len(got)]
    if served.error is not None:
        assert len(closing) <= 1
        return
    assert len(closing) == 1, request
    if isinstance(closing[0], Done):
        assert got == item.expected()
        assert closing[0].work["written"] == item.outputs
        assert closing[0].work["read"] == (0 if item.immediate else item.read)
    else:
        assert item.trouble in {"start", "step", "error", "preempt"}


def check_served(request: Request, served: SimulatedCall, longest_turn_s: float) -> None:
    (report,) = served.reports
    assert sum(report.phases_s.values()) == pytest.approx(report.total_s)
    assert report.total_s <= request.call.deadline_s + longest_turn_s + 1e-6
    assert all(item.stage is Stage.OVER for item in served.live.items)
    for index, item in enumerate(request.call.items):
        assert isinstance(item, SimulatedItem)
        check_item(request, served, index, item)
    if served.error is None:
        assert isinstance(served.events[-1], Ended)
        assert sum(isinstance(event, Ended) for event in served.events) == 1
        return
    assert not any(isinstance(event, Ended) for event in served.events)
    if isinstance(served.error, DeadlineExceeded):
        assert report.total_s >= request.call.deadline_s
    else:
        assert isinstance(served.error, RequestCancelled)
        assert request.left


def check_clean(world: World) -> None:
    scheduler = world.loop.scheduler
    residency = scheduler.residency
    assert world.engine.misuses == []
    assert world.engine.open_slots == []
    assert (residency.ledger.held_bytes, len(residency.ledger), len(residency.roster)) == (0, 0, 0)
    assert residency.preempted == []
    assert (len(scheduler.queue), scheduler.queue.weight) == (0, 0.0)
    assert list(scheduler.queue) == []
    assert len(scheduler._book._deadlines) == len(scheduler._suspects) == 0
    assert [scheduler._book._cancelled, scheduler._book._touched, scheduler._releasable] == [
        {},
        {},
        [],
    ]


@pytest.mark.parametrize("seed", [1])
def test_ten_thousand_random_requests_keep_every_promise(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    world = World(seed)
    world.play()
    waits: dict[Priority, list[float]] = {priority: [] for priority in Priority}
    outcomes: Counter[str] = Counter()
    for request in world.requests:
        assert (request.served is None) == (request.refusal is not None)
        if request.served is None:
            check_refusal(request)
            outcomes["refused"] += 1
            continue
        check_served(request, request.served, world.longest_turn_s)
        report = request.served.reports[0]
        outcomes[report.outcome] += 1
        if report.first_output_s is not None:
            waits[request.call.priority].append(report.first_output_s)
    check_clean(world)
    assert sum(world.loop.scheduler.finished.values()) == REQUESTS - outcomes["refused"]
    # The script is worth its name: all of it happened.
    for outcome in ("ok", "refused", "deadline_exceeded", "request_cancelled", "engine_failed"):
        assert outcomes[outcome] > 50, outcomes
    assert world.engine.preemptions > 100
    assert world.engine.failed > 10
    # Who is accepted begins about as soon as was foreseen, and nobody starves: not even batch
    # work, which is not refused for its wait, behind all that came before and after it.
    assert max(waits[Priority.URGENT]) <= 1.25 * WAIT_S
    assert sorted(waits[Priority.NORMAL])[len(waits[Priority.NORMAL]) * 95 // 100] <= 1.25 * WAIT_S
    assert max(map(max, waits.values())) <= STARVED_S
