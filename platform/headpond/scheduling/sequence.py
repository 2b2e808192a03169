"""What the scheduler knows of a call and of each of its items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import inf
from typing import Any

from headpond import engine
from headpond.admission.line import Waiting
from headpond.call import Accepted, Call, Claim, Done, Event, Output
from headpond.engine import ContinuousEngine, Immediate, Plan
from headpond.errors import HeadpondError
from headpond.scheduling.inlet import Inlet
from headpond.scheduling.meter import Meter
from headpond.telemetry.outcomes import outcome
from headpond.telemetry.report import CallReport
from headpond.telemetry.timeline import Timeline
from headpond.units import Work

Engine = ContinuousEngine[Any, Any, Any, object]
"""Any engine. Its items, plans and slots are its own types, which Python can't quantify."""

FedEngine = engine.FedEngine[Any, Any, Any, object]
"""Any engine whose items may be fed."""


class Stage(Enum):
    """Where an item is; it only ever goes on, but for running and preempted."""

    WAITING = auto()
    RUNNING = auto()
    PREEMPTED = auto()
    OVER = auto()


@dataclass(slots=True, eq=False, kw_only=True)
class Item:
    """One item of a call: a sequence that runs in one slot.

    Attributes:
        call: The call it belongs to.
        index: Its place in the call.
        plan: What the engine made of it.
        work: The most it can cost; the scheduler replaces it by what it came to.
        meter: How much of it is done, weighed.
        extent: The most it ever holds along the axis.
        stage: Where it is; set by the scheduler.
        waiting: Its entry in the queue; set when it is offered.
        order: Rank by first start; older ranks are lower; set by the scheduler.
        slot: The engine's slot; set by the driver.
        started: Whether `slot` is one, to be released; set by the driver.
        first_left: Units of its first phase still to be passed.
        cached_left: How many of them will probably take no work.
        steady_s: When it first was past its first phase; infinity until then.
        held: Units it holds along the axis.
        reached: The most units it ever held.
        granted: Units for which the ledger has reserved state.
        last_step: The step it was last part of.
        inlet: Where its input comes in while it runs; None when all is there.
        idle: Whether it can't be stepped until more input comes.
        outputs: Steps that gave an output.
        first_output_s: When the first output came.
        last_output_s: When the last output came.
    """

    call: LiveCall
    index: int
    plan: Plan[Any]
    work: Work
    meter: Meter
    extent: int = 0
    first_left: int = 0
    cached_left: int = 0
    steady_s: float = inf
    stage: Stage = Stage.WAITING
    waiting: Waiting[Item] | None = None
    order: int = 0
    slot: object = None
    started: bool = False
    held: int = 0
    reached: int = 0
    granted: int = 0
    last_step: int = 0
    inlet: Inlet | None = None
    idle: bool = False
    outputs: int = 0
    first_output_s: float = 0.0
    last_output_s: float = 0.0

    @property
    def weight(self) -> float:
        """The most it can cost, weighed."""
        return self.meter.weight

    @property
    def first_need(self) -> int:
        """Units of its first phase that will probably have to be computed; at least 1."""
        return max(self.first_left - self.cached_left, 1)

    def advance(self, units: int, skipped: int, now_s: float) -> float:
        """Go on along the axis.

        Args:
            units: How far.
            skipped: How many of them took no work.
            now_s: When.

        Returns:
            The weighed work of what was reached for the first time.
        """
        self.held += units
        if self.first_left:
            self.first_left = max(self.first_left - units, 0)
            self.cached_left = 0
            if not self.first_left:
                self.steady_s = min(self.steady_s, now_s)
        if self.held <= self.reached:
            return 0.0
        start, self.reached = self.reached, self.held
        return self.meter.advance(start, self.held, skipped)

    def answer(self, answer: Immediate) -> None:
        """Be over with what planning found."""
        self.stage = Stage.OVER
        self.call.pending.extend([Output(self.index, payload) for payload in answer.outputs])
        self.call.pending.append(Done(self.index, answer.work))

    def give(self, outputs: Sequence[object], now_s: float) -> None:
        """Pass outputs on to the call, and remember when."""
        self.outputs += 1
        self.last_output_s = now_s
        if self.outputs == 1:
            self.first_output_s = now_s
        self.call.pending.extend([Output(self.index, payload) for payload in outputs])


@dataclass(slots=True, eq=False, kw_only=True)
class LiveCall:
    """One call from its offer until it is over.

    Attributes:
        call: As it came.
        accepted: What its caller is told on admission.
        arrived_s: When it was submitted.
        timeline: Its phases so far.
        items: One for each item of the call.
        open: Items that are not over and released.
        pending: Events not yet delivered.
        failure: Why the call as a whole ends, when it does.
        item_error: The first error of an item.
        scheduled: Whether an item was part of a step.
        small: Whether it is served as a small call, where batches are formed; set on admission.
        preemptions: How often an item lost its state.
    """

    call: Call
    accepted: Accepted
    arrived_s: float
    timeline: Timeline
    items: list[Item] = field(default_factory=list)
    open: int = 0
    pending: list[Event] = field(default_factory=list)
    failure: HeadpondError | None = None
    item_error: HeadpondError | None = None
    scheduled: bool = False
    small: bool = False
    preemptions: int = 0

    @property
    def deadline_at_s(self) -> float:
        """When the call's time is up."""
        return self.arrived_s + self.call.deadline_s

    def claim(self, now_s: float) -> Claim:
        """Return whose call it is, with the seconds that are left of it."""
        return replace(self.call.claim, deadline_s=self.deadline_at_s - now_s)

    @property
    def asked(self) -> list[Item]:
        """The items that planning has not answered."""
        return [item for item in self.items if item.plan.answer is None]

    @property
    def answered(self) -> bool:
        """Whether planning has answered every item."""
        return not self.asked

    @property
    def all_over(self) -> bool:
        """Whether no item waits or runs any more."""
        return all(item.stage is Stage.OVER for item in self.items)

    @property
    def fed(self) -> Item | None:
        """The item whose input comes while it runs; a call has at most one."""
        return next((item for item in self.items if item.inlet is not None), None)

    def work(self) -> Work:
        """Return what its items came to together; only true when all are over."""
        total = self.items[0].work
        for item in self.items[1:]:
            total = total + item.work
        return total

    def report(self, now_s: float) -> CallReport:
        """Say how the call went, when it is over."""
        error = self.failure or self.item_error
        gaps = sum(max(item.outputs - 1, 0) for item in self.items)
        spread_s = sum(item.last_output_s - item.first_output_s for item in self.items)
        firsts = [item.first_output_s for item in self.items if item.outputs]
        visited = self.timeline.visited_s if self.answered else self.timeline.durations_s
        return CallReport(
            call=self.call,
            outcome=outcome(error),
            work=self.work(),
            phases_s=visited(now_s),
            first_output_s=min(firsts) - self.arrived_s if firsts else None,
            gap_s=spread_s / gaps if gaps else None,
            total_s=now_s - self.arrived_s,
            preemptions=self.preemptions,
        )


@dataclass(slots=True)
class Delivery:
    """What one turn has for one call.

    Attributes:
        call: Whose it is.
        events: What to hand to its reader, in order.
        error: Why the call ends without `Ended`; raised to the reader after the events.
        report: Present when the call is over.
    """

    call: LiveCall
    events: Sequence[Event]
    error: HeadpondError | None = None
    report: CallReport | None = None


def worked_off(shape: Mapping[str, int], extent: Sequence[str], units: int) -> dict[str, int]:
    """Return the part of a shape that `units` along the axis come to.

    The dimensions of the extent fill up in their order: 150 units of 128 prompt tokens and
    64 output tokens are 128 and 22. The other dimensions stay.
    """
    done = dict(shape)
    for dim in extent:
        done[dim] = min(units, shape[dim])
        units -= done[dim]
    return done
