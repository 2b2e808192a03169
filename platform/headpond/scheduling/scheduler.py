"""The scheduler of the continuous loop: a state machine without engine, thread or clock.

A driver asks `decide` what to do, does it on the engine, and tells `advance` how it went.

- Deadlines and cancellations are looked at in `decide`, so between steps. What a step that
  began in time gives is passed on, even when the deadline passed during it (whoever answers
  the caller looks again); an item that
  would need one more step is not done, and its call ends with `DeadlineExceeded`.
- Preempted items go on before new ones are started; who loses its state when, and what
  starting reserves, is said in `Residency`.
- Groups that can't share a step take turns; within one, `Composer` deals out the units.
- Where one tenant has more than its share of the slots it stands aside in some steps, so that
  it does not make those of others long (`FairSteps`).
- A step that raises has advanced nobody; its group is tried again by halves (`Suspects`)
  until one item fails alone.
- Items that get their input while they run are stepped when there is some. Live ones are
  admitted while all can be kept up with, never to wait; what is not live shares the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from headpond.admission.backlog import Backlog, Wait, told
from headpond.admission.drain import DrainRate
from headpond.admission.line import Waiting
from headpond.admission.queue import FairQueue
from headpond.call import Claim
from headpond.engine import Progress
from headpond.errors import (
    DeclarationError,
    HeadpondError,
    InvalidRequest,
    OutOfMemory,
    RequestCancelled,
)
from headpond.record import Continuous, PhaseKind, WorkloadRecord
from headpond.scheduling.book import CallBook
from headpond.scheduling.border import attempt
from headpond.scheduling.composer import Composer, Grant
from headpond.scheduling.fair_steps import FairSteps
from headpond.scheduling.forecast import Forecast, least, refuse_late
from headpond.scheduling.live import LiveItems
from headpond.scheduling.missteps import Missteps
from headpond.scheduling.pace import Pace
from headpond.scheduling.residency import Residency
from headpond.scheduling.sequence import Delivery, Item, LiveCall, Stage, worked_off
from headpond.scheduling.standing_aside import StandingAside, is_waited_for
from headpond.scheduling.suspects import Suspects
from headpond.scheduling.width import Width
from headpond.state import StateModel
from headpond.units import Work


@dataclass(slots=True)
class Turn:
    """What the driver has to do next, in this order; it releases before it starts.

    Attributes:
        preempted: Items whose slots lose their state.
        started: Items that get a slot.
        inputs: What came for items of the step since they were stepped last.
        grants: The step: who goes how far. Empty when there is nothing to step.
    """

    preempted: list[Item] = field(default_factory=list)
    started: list[Item] = field(default_factory=list)
    inputs: list[tuple[Item, list[object]]] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.preempted or self.started or self.grants)


class Scheduler:
    """Decides who waits, starts, steps, grows, loses its state and ends."""

    def __init__(
        self,
        record: WorkloadRecord,
        state: StateModel,
        *,
        state_bytes: int,
        max_slots: int,
        max_wait_s: float | None = None,
        tenant_weights: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Start idle.

        Args:
            record: The workload; must batch continuously.
            state: The record's state, bound to the bundle.
            state_bytes: The budget of retained state.
            max_slots: The most items that run at once.
            max_wait_s: Calls that would wait longer are refused; None as the record says.
            tenant_weights: Weights of tenants that don't weigh 1.

        Raises:
            DeclarationError: The record's batching is not continuous.
        """
        if not isinstance(record.batching, Continuous):
            raise DeclarationError(f"workload {record.name!r} is not batched continuously")
        self._record = record
        self._units = record.units_by_name
        self._batching = record.batching
        self._device_phase = next(p.name for p in record.phases if p.kind is PhaseKind.DEVICE)
        self._phase_rank = {phase.name: rank for rank, phase in enumerate(record.phases[1:-1])}
        self._closing_phase = _closing_phase(record)
        self._missteps = Missteps(record)
        self.drain = DrainRate()
        limit = record.overload.queue_limit.weigh(self._units)
        self.queue: FairQueue[Item] = FairQueue(limit, self.drain, tenant_weights)
        feed = self._batching.feed
        self.residency = Residency(
            state,
            state_bytes=state_bytes,
            max_slots=max_slots,
            stride=1 if feed is None else state.granule,
        )
        self._pace = Pace(
            step_budget=self._batching.step_budget,
            stretch=self._batching.stretch,
            gap_s=least(rate.bounds.gap_s for rate in record.throughput),
        )
        self._composer = Composer(self._pace, self._batching.step_budget)
        self._forecast = Forecast(
            self.drain, self.queue, self.residency, self._pace, exact=record.overload.exact
        )
        self._longest_wait_s = least((record.overload.wait_s, max_wait_s))
        self._live = None if feed is None else LiveItems(feed, self.queue, self.residency)
        self.steps = 0
        self.failed_steps_in_a_row = 0
        self._book = CallBook()
        self._suspects = Suspects()
        self._width = Width()
        self._standing_aside = StandingAside()
        self._fair_steps = None if feed is not None else FairSteps(self._pace, tenant_weights)
        self._releasable: list[Item] = []
        self._last_order = 0
        self.last_step_s: float | None = None
        self._decided_s = 0.0
        self._full = self._short = False
        self._done = self._spared = 0.0

    @property
    def calls(self) -> Mapping[LiveCall, None]:
        """The calls that are not over."""
        return self._book.calls

    @property
    def finished(self) -> Mapping[str, int]:
        """Calls that are over, by outcome."""
        return self._book.finished

    def offer(self, call: LiveCall, now_s: float) -> Delivery | None:
        """Let all items of a call wait, or refuse it without a trace.

        Returns:
            The whole call, when planning has answered all of it already.

        Raises:
            DeadlineExceeded: Its time is up already, or surely too short.
            InvalidRequest: An item could never fit the state budget.
            Overloaded: The queue is full, or the wait longer than the deadline or the bound.
        """
        return self._book.admit(call, now_s, self._admit)

    def check_turn(self, claim: Claim, before: Wait, now_s: float) -> None:
        """Refuse a call that would wait too long however little it asks for.

        Args:
            claim: What is known of it.
            before: Its line before it is offered.
            now_s: When.

        Raises:
            Overloaded: It would.
        """
        calls = self.queue.calls(claim.tenant, claim.priority)
        wait = Wait(self._forecast.turn_s(claim.priority, claim.tenant, now_s), calls).after(before)
        refuse_late(claim, wait.wait_s, 0.0, self._longest_wait_s)

    def backlog(self, now_s: float) -> Backlog:
        """Return what waits, as others may know it."""
        waits = told(
            self.queue.lines(),
            lambda priority, tenant: self._forecast.turn_s(priority, tenant, now_s),
        )
        return Backlog(waits=waits, takes_s=self._forecast.takes_s, longest_s=self._longest_wait_s)

    def cancel(self, call: LiveCall, error: HeadpondError) -> None:
        """End a call at the next chance: nobody reads it any more, for the reason `error`."""
        self._book.cancel(call, error)

    def feed(self, call: LiveCall, payload: object, units: int) -> None:
        """Take in input for the fed item of a call.

        Raises:
            InvalidRequest: The call is not fed, or this is more than it was admitted for.
            RequestCancelled: It is over.
        """
        item = call.fed
        if item is None or item.inlet is None:
            raise InvalidRequest("this call takes no further input")
        if item.stage is Stage.OVER:
            raise call.failure or RequestCancelled()
        item.inlet.put(payload, units)
        item.idle = False

    def abort(self, error: HeadpondError) -> None:
        """End every call with `error`; the driver then releases and collects as ever."""
        for call in list(self.calls):
            self._end(call, error)

    def decide(self, now_s: float) -> Turn:
        """End what is dead, make room, resume, start, and deal out the next step."""
        self._decided_s = now_s
        for call, error in self._book.ending(now_s):
            self._end(call, error)
        residency = self.residency
        turn = Turn(preempted=residency.grow())
        residency.resume(now_s)
        if not (turn.preempted or residency.preempted):
            self._start(turn, now_s)
        self._forecast.blocked = len(self.queue) > 0
        self._full = self._forecast.blocked or not residency.free_slots
        self._compose(turn, now_s)
        return turn

    def advance(
        self,
        grants: Sequence[Grant],
        results: Sequence[Progress[object]] | HeadpondError,
        now_s: float,
    ) -> None:
        """Take in how a step went.

        Args:
            grants: Who was in it.
            results: Their progress in the same order, or the error the step raised.
            now_s: When it ended.
        """
        self.steps += 1
        self.last_step_s = now_s
        took_s = now_s - self._decided_s
        if not isinstance(results, HeadpondError):
            self.failed_steps_in_a_row = 0
            if not self._suspects:
                self._width.held(len(grants))
            if self._live is not None:
                self._live.observe(results, took_s)
            steady = sum(not item.first_left for item, _ in grants)
            first = 0
            for (item, units), progress in zip(grants, results, strict=True):
                first += self._progress(item, units, progress, now_s)
            if not all(is_waited_for(item.call) for item, _ in grants):
                self._standing_aside.shared(took_s, now_s)
            held_back = not self._short and any(item.first_left for item in self.residency.roster)
            self._pace.observe(steady, first, took_s, held_back=held_back)
            if self._fair_steps is not None:
                self._fair_steps.observe(len(grants), took_s)
        else:
            self.failed_steps_in_a_row += 1
            if len(grants) == 1:
                self.fail(grants[0][0], results)
                self._width.blamed()
            else:
                if isinstance(results, OutOfMemory):
                    self._width.lacked(len(grants))
                self._suspects.split([item for item, _ in grants])
        self.drain.record(self._done, took_s, spared=self._spared, full=self._full)
        self._done = self._spared = 0.0

    def fail(self, item: Item, error: HeadpondError) -> None:
        """End one item with an error; the others of its call go on."""
        if item.stage is not Stage.OVER:
            self._book.fail(item, error)
            self._close(item)

    def work_done(self, item: Item) -> Work:
        """Return the cost of the part of an item that was worked off."""
        if not item.reached:
            return Work()
        done = worked_off(item.plan.shape, self._batching.extent, item.reached)
        if self._batching.cached:
            done[self._batching.cached] = item.meter.skipped
        work = attempt(self._record.cost, done)
        return Work() if isinstance(work, HeadpondError) else work

    def take_releasable(self) -> list[Item]:
        """Hand out the items whose slots must be released now, each once."""
        releasable, self._releasable = self._releasable, []
        return releasable

    def released(self, item: Item) -> None:
        """Note that an item holds nothing in the engine any more."""
        self._book.released(item)

    @property
    def has_news(self) -> bool:
        """Whether there may be something to collect."""
        return self._book.has_news

    def collect(self, now_s: float) -> list[Delivery]:
        """Hand out what this turn has for each call: for streams at once, else at the end."""
        return self._book.collect(now_s)

    @property
    def all_wait_for_input(self) -> bool:
        """Whether nothing can go on by itself that runs."""
        return all(item.idle for item in self.residency.roster)

    @property
    def next_deadline_s(self) -> float | None:
        """When the next call's time is up."""
        return self._book.next_deadline_s

    def _refuse_when_too_big(self, item: Item) -> None:
        most, budget = self.residency.most_bytes(item), self.residency.ledger.budget_bytes
        if most > budget:
            dims = {dim.name: dim for dim in self._record.request.dims}
            param = dims[self._batching.extent[-1]].param if self._batching.extent else None
            raise InvalidRequest(
                f"{item.extent} {self._batching.axis} may hold {most} bytes of state; "
                f"this replica has {budget}",
                param=param,
            )

    def _admit(self, call: LiveCall, items: Sequence[Item], now_s: float) -> None:
        tenant, priority = call.call.tenant, call.call.priority
        if self._live is not None:
            self._live.check(call)
        entries = []
        for item in items:
            self._refuse_when_too_big(item)
            item.waiting = Waiting(
                tenant=tenant, priority=priority, flow=call, weight=item.weight, content=item
            )
            entries.append(item.waiting)
        self._forecast.check(call, items, now_s, self._longest_wait_s)
        self._standing_aside.asked(call, now_s)
        self.queue.append(entries)
        self._forecast.admitted(call, items, now_s)

    def _start(self, turn: Turn, now_s: float) -> None:
        while (item := self.queue.take(self.residency.has_room)) is not None:
            self._last_order += 1
            item.order = self._last_order
            self.residency.enter(item, now_s)
            turn.started.append(item)
            if item.inlet is not None:
                self._enter_device(item, now_s)

    def _compose(self, turn: Turn, now_s: float) -> None:
        group = self._suspects.next_group()
        if not group:
            group = self._next_group(now_s)
            if self._live is not None:
                group = self._live.beside(group)
            if self._fair_steps is not None:
                group = self._fair_steps.kept(group, self.residency.roster)
            group = self._width.narrowed(group)
        self._short = self._standing_aside.expects(now_s) and not any(
            is_waited_for(item.call) for item in group
        )
        turn.grants = self._composer.compose(group, self.residency.roster, short=self._short)
        step = self.steps + 1
        for item, _ in turn.grants:
            item.last_step = step
            self._enter_device(item, now_s)
            if item.inlet is not None and item.inlet.pending:
                turn.inputs.append((item, item.inlet.take()))

    def _next_group(self, now_s: float) -> list[Item]:
        """Return the group whose turn it is, less the batch work that stands aside.

        It does not where others wait for the slots it has: these are free sooner so.
        """
        roster = self.residency.roster
        if self.queue.awaited:
            return roster.next_group()
        for _ in range(len(roster.groups)):
            if group := self._standing_aside.kept(roster.next_group(), roster, now_s):
                return group
        return []

    def _enter_device(self, item: Item, now_s: float) -> None:
        if not item.call.scheduled:
            item.call.scheduled = True
            item.call.timeline.enter(self._device_phase, now_s)

    def _progress(self, item: Item, units: int, progress: Progress[object], now_s: float) -> int:
        """Take in one item's part of a step; return the units of a first phase it computed."""
        first = item.first_left > 0
        said = progress.skipped
        skipped = (max(progress.units - units, 0) if said is None else said) if first else 0
        self._done += item.advance(progress.units, skipped, now_s)
        if progress.outputs:
            self._book.give(item, progress.outputs, now_s)
        item.idle = progress.idle and not (item.inlet is not None and item.inlet.pending)
        error = progress.error or self._missteps.find(item, progress)
        if error is None and progress.phase is not None:
            self._enter(item.call, progress.phase, now_s)
        if error is not None:
            self.fail(item, error)
        elif progress.finished is not None:
            self._close(item, progress.finished)
            self._book.done(item)
            if self._closing_phase is not None and item.call.all_over:
                self._enter(item.call, self._closing_phase, now_s)
        return progress.units - skipped if first else 0

    def _enter(self, call: LiveCall, phase: str, now_s: float) -> None:
        """Move a call's time forward; an item that lags behind another moves nothing."""
        if self._phase_rank[phase] > self._phase_rank[call.timeline.phase]:
            call.timeline.enter(phase, now_s)

    def _end(self, call: LiveCall, error: HeadpondError) -> None:
        """End a call as a whole. What it had not delivered is dropped."""
        for item in self._book.end(call, error):
            self._close(item)

    def _close(self, item: Item, finished: Work | None = None) -> None:
        """Take an item out of wherever it is; its call is over when all are released."""
        waiting = item.stage is Stage.WAITING
        if not waiting:
            self.residency.leave(item)
        item.stage = Stage.OVER
        item.work = self.work_done(item) if finished is None else finished
        if item.waiting is not None:
            self.queue.withdraw(item.waiting)
        if waiting:
            self.released(item)
            return
        if finished is not None:
            self._spared += item.meter.finish()
        if item.waiting is not None:
            self.queue.settle(item.waiting, item.work.weigh(self._units))
        self._releasable.append(item)


def _closing_phase(record: WorkloadRecord) -> str | None:
    """Return the host phase that follows the last device phase: what is left to do then."""
    kinds = [phase.kind for phase in record.phases]
    after = len(kinds) - kinds[::-1].index(PhaseKind.DEVICE)
    return record.phases[after].name if kinds[after] is PhaseKind.HOST else None
