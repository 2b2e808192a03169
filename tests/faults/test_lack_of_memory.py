"""Steps that memory is not enough for: fewer items share a step, and the engine lives on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headpond.call import Call, Ended, Failed, Output
from headpond.engine import Progress, Quantum
from headpond.errors import EngineFailed, HeadpondError, OutOfMemory
from headpond.scheduling.border import attempt
from headpond.testing.clock import FakeClock
from headpond.testing.simulated import SimulatedEngine, SimulatedItem, SimulatedSlot
from headpond.testing.simulation import SimulatedCall, SimulatedLoop, simulated_record


class OutOfMemoryError(RuntimeError):
    """As torch's, which the platform can't know."""


class SmallEngine(SimulatedEngine):
    """Has memory for `room` slots in a step, and none for one that is greedy."""

    room = 16
    greedy = ""

    def step(self, quanta: Sequence[Quantum[SimulatedSlot]]) -> list[Progress[str]]:
        names = {quantum.slot.item.name for quantum in quanta}
        if len(quanta) > self.room or self.greedy in names:
            raise MemoryError
        return super().step(quanta)


class Bench:
    """The real scheduler over a small engine."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.engine = SmallEngine(clock)
        self.loop = SimulatedLoop(
            simulated_record(step_budget=64),
            self.engine,
            clock,
            symbols={"most_units": 1_000},
        )

    def submit(self, name: str, outputs: int) -> SimulatedCall:
        return self.loop.submit(
            Call(
                request_id=name,
                tenant="a",
                workload="simulated",
                model="simulated",
                items=(SimulatedItem(name=name, outputs=outputs),),
                deadline_s=1e6,
                stream=True,
            )
        )


def said(call: SimulatedCall) -> list[object]:
    return [event.payload for event in call.events if isinstance(event, Output)]


def test_fewer_share_a_step_and_nobody_fails() -> None:
    bench = Bench()
    bench.engine.room = 5
    calls = [bench.submit(f"i{at}", outputs=20) for at in range(16)]
    bench.loop.run()
    for at, call in enumerate(calls):
        assert said(call) == [f"i{at}:{index}" for index in range(20)]
    assert max(map(len, bench.engine.steps)) <= 5
    assert not bench.engine.misuses
    assert not bench.engine.open_slots


def test_the_oldest_go_on_while_the_newest_wait() -> None:
    bench = Bench()
    bench.engine.room = 2
    calls = [bench.submit(f"i{at}", outputs=8) for at in range(4)]
    while not calls[0].over:
        bench.loop.turn()
    assert [len(said(call)) for call in calls] == [8, 8, 1, 1]  # once, to see who is to blame


def test_all_share_steps_again_when_there_is_memory_again() -> None:
    bench = Bench()
    bench.engine.room = 2
    for at in range(4):
        bench.submit(f"i{at}", outputs=400)
    for _ in range(20):
        bench.loop.turn()
    bench.engine.room = 16
    bench.loop.run()
    assert max(map(len, bench.engine.steps)) == 4


def test_one_that_takes_it_all_is_found_and_holds_up_nobody() -> None:
    bench = Bench()
    bench.engine.greedy = "i9"
    calls = [bench.submit(f"i{at}", outputs=20) for at in range(16)]
    bench.loop.run()
    assert [len(said(call)) for call in calls] == [20] * 9 + [0] + [20] * 6
    # 4 to find it, beside those that all others share.
    assert len(bench.engine.steps) <= 20 + 8


def test_one_that_is_too_large_alone_is_refused_and_may_be_sent_again() -> None:
    bench = Bench()
    bench.engine.room = 0
    call = bench.submit("large", outputs=1)
    bench.loop.run()
    failed, ended = call.events
    assert isinstance(failed, Failed)
    assert isinstance(ended, Ended)
    assert isinstance(failed.error, OutOfMemory)
    assert (failed.error.status, failed.error.retryable) == (503, True)
    bench.engine.room = 1
    after = bench.submit("after", outputs=2)
    bench.loop.run()
    assert said(after) == ["after:0", "after:1"]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (MemoryError(), OutOfMemory),
        (OutOfMemoryError("CUDA out of memory"), OutOfMemory),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), OutOfMemory),
        (RuntimeError("shapes differ"), EngineFailed),
        (ValueError("can't allocate memory"), EngineFailed),
    ],
)
def test_a_lack_is_told_from_other_failures(
    raised: Exception, expected: type[HeadpondError]
) -> None:
    def fail() -> None:
        raise raised

    assert type(attempt(fail)) is expected
