"""The two loops: an engine on threads of its own, behind an asyncio door."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import cast

from headpond.admission.backlog import Backlog, Wait, joined
from headpond.admission.limits import Limits
from headpond.admission.too_many import TooMany
from headpond.admission.turnstile import Turnstile
from headpond.call import Call, Claim
from headpond.errors import (
    DeadlineExceeded,
    EngineFailed,
    HeadpondError,
    InvalidRequest,
    Overloaded,
    RequestCancelled,
    WorkerLost,
)
from headpond.record import Continuous, WorkloadRecord
from headpond.scheduling.answer import LoopAnswer
from headpond.scheduling.batcher import Batcher
from headpond.scheduling.intake import Intake
from headpond.scheduling.lanes import Engine as FormedEngine
from headpond.scheduling.lanes import Lanes
from headpond.scheduling.planner import Planner
from headpond.scheduling.scheduler import Scheduler
from headpond.scheduling.sequence import Delivery, Engine, LiveCall, Stage
from headpond.scheduling.snapshot import LoopSnapshot
from headpond.scheduling.thread import EngineThread
from headpond.scheduling.worker import Deliver, Worker
from headpond.scheduling.write_through import WriteThrough
from headpond.state import StateModel
from headpond.telemetry.outcomes import is_refusal, outcome
from headpond.telemetry.report import CallReport
from headpond.units import Work

logger = logging.getLogger(__name__)

DEFAULT_SLOTS = 16
"""The most items that share a step, unless a deployment says otherwise."""

_ABORT_GRACE_S = 5.0


class Loop:
    """Serves the calls of one event loop with one engine on threads of its own.

    A call is planned and admitted on the caller's side, so that a refusal is immediate.
    What the engine gives goes back to the event loop in one callback for all calls; for
    calls that don't stream, once at the end. What planning has answered never gets to the
    engine. A call that asks for its outputs to be stored is over, and counted, when they are.
    """

    def __init__(
        self,
        work: Callable[[Deliver, Callable[[], None]], Worker],
        intake: Intake,
        planner: Planner,
        *,
        observer: Callable[[CallReport], None],
        clock: Callable[[], float],
        stuck_after_s: float,
        ahead: int = 0,
        writes: WriteThrough | None = None,
    ) -> None:
        """Put the parts together; nothing runs before `start`.

        Args:
            work: Makes the worker, of what it calls with deliveries and when it has ended.
            intake: Begins calls, and adds up what they cost.
            planner: Plans them.
            observer: Gets one report for each offered call, on the event loop's thread.
            clock: Monotonic seconds.
            stuck_after_s: Work that takes longer means a stuck engine.
            ahead: Units of an item's input that may wait, where items are fed.
            writes: Stores what calls ask for; None where there is no store.
        """
        self._ahead = ahead
        self._worker = work(
            partial(self._on_event_loop, self._deliver),
            partial(self._on_event_loop, self._abandon),
        )
        self._intake = intake
        self._planner = planner
        self._observer = observer
        self._clock = clock
        self._stuck_after_s = stuck_after_s
        self._writes = writes
        self._turnstile = Turnstile()
        # The event loop of the callers; all below is touched on its thread only.
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._answers: dict[LiveCall, LoopAnswer] = {}
        self._received = 0
        self._refused: Counter[str] = Counter()
        self._unplanned: Counter[str] = Counter()

    def start(self) -> None:
        """Start the engine's threads.

        Raises:
            RuntimeError: It was started before.
        """
        self._worker.start()

    async def submit(self, call: Call) -> LoopAnswer:
        """Plan and admit a call.

        Raises:
            HeadpondError: Refused; nothing is retained.
        """
        arrived_s = self._clock()
        self._received += 1
        try:
            return await self._paced(call, arrived_s)
        except HeadpondError as error:
            self._turn_away(call, error, arrived_s)
            raise
        except asyncio.CancelledError:
            self._turn_away(call, RequestCancelled(), arrived_s)
            raise

    async def stop(self, drain_s: float) -> None:
        """Refuse new work, let admitted work finish within `drain_s`, and end the rest.

        The rest ends with `WorkerLost`, also when the engine is stuck and never returns.
        """
        until_s = self._clock() + drain_s
        self._worker.drain()
        self._planner.close()
        await asyncio.to_thread(self._worker.join, drain_s)
        if self._worker.alive:
            self._worker.abort(WorkerLost())
            await asyncio.to_thread(self._worker.join, min(_ABORT_GRACE_S, self._stuck_after_s))
        self._abandon()
        if self._writes is not None:
            await self._writes.close(until_s - self._clock())

    def give_up(self) -> bool:
        """End all calls when the engine is stuck or lost, and say whether it is.

        Those that a stuck engine works on fail: one of them may be what it is stuck in, and
        would only take the next replica with it. The others are lost, and can be sent again.
        """
        snapshot = self.snapshot()
        over = snapshot.stuck or snapshot.lost
        for live in list(self._answers) if over else ():
            blamed = live.scheduled and not snapshot.lost
            error = EngineFailed("the engine stood still") if blamed else WorkerLost()
            self._worker.cancel(live, error)  # in case it ever goes on
            self._give_up(live, error)
        return over

    def snapshot(self) -> LoopSnapshot:
        """Return how the loop stands, without waiting for the engine."""
        snapshot = self._worker.snapshot(dict(self._refused))
        finished = Counter(snapshot.finished) + self._unplanned
        return replace(snapshot, received=self._received, finished=finished)

    def backlog(self) -> Backlog:
        """Return what waits, as others may know it."""
        backlog = self._worker.backlog()
        return replace(backlog, waits=joined(self._planner.waits, backlog.waits))

    async def _paced(self, call: Call, arrived_s: float) -> LoopAnswer:
        """Admit a call, but those that are like others that wait too long no faster than these."""
        self._turnstile.enter(call, arrived_s)
        try:
            answer = await self._admit(call, arrived_s)
        except Overloaded as refusal:
            if type(refusal) is Overloaded:
                self._turnstile.refused(call, self._clock())
            raise
        self._turnstile.done(call, self._clock())
        return answer

    async def _admit(self, call: Call, arrived_s: float) -> LoopAnswer:
        self._worker.check_ready(arrived_s)
        live = self._intake.open(call, arrived_s)
        await self._planner.plan(live, partial(self._check_planned_turn, live))
        now_s = self._clock()
        self._intake.close(live, now_s)
        event_loop = self._event_loop = asyncio.get_running_loop()
        answer = LoopAnswer(live, event_loop, self._worker, self._ahead)
        self._check_store(call)
        delivery = self._worker.offer(live, now_s)
        self._answers[live] = answer
        if call.store is not None and self._writes is not None:
            self._writes.enter(live)
        if delivery is not None:
            self._deliver((delivery,))
            return answer
        # The scheduler ends late calls between steps; this is for a step that never ends.
        answer.fail_after(live.deadline_at_s - now_s + self._stuck_after_s, DeadlineExceeded())
        return answer

    def check_turn(self, claim: Claim) -> None:
        """Refuse a call that would wait too long, in all, however little it asks for.

        Raises:
            Overloaded: It would.
        """
        try:
            self._worker.check_turn(claim, self._planner.wait(claim.priority, claim.tenant))
            early_s = self._turnstile.early_in_line_s(claim, self._clock())
            if early_s > 0.0:
                raise TooMany.for_a_while(early_s)
        except HeadpondError as refusal:
            self._received += 1
            self._refused[outcome(refusal)] += 1
            raise

    def _check_planned_turn(self, live: LiveCall, before: Wait) -> None:
        """Refuse what would wait too long, before it is planned. What is fed never waits."""
        if not (self._ahead and live.call.stream):
            self._worker.check_turn(live.claim(self._clock()), before)

    def _check_store(self, call: Call) -> None:
        if call.store is None:
            return
        if self._writes is None:
            raise InvalidRequest("this model is served without a vector store", param="store")
        self._writes.check(call)

    def _turn_away(self, call: Call, error: HeadpondError, arrived_s: float) -> None:
        """Report a call that was not admitted: refused, or it failed or ended while planned."""
        refused = is_refusal(error)
        (self._refused if refused else self._unplanned)[outcome(error)] += 1
        spent_s = self._clock() - arrived_s
        self._observer(
            CallReport(
                call=call,
                outcome=outcome(error),
                work=Work(),
                phases_s={} if refused else {self._intake.planning_phase: spent_s},
                first_output_s=None,
                gap_s=None,
                total_s=spent_s,
            )
        )

    def _on_event_loop(self, action: Callable[..., None], *given: Sequence[Delivery]) -> None:
        """Run `action` on the callers' event loop; called from the engine's thread."""
        if self._event_loop is None:
            return
        try:
            self._event_loop.call_soon_threadsafe(action, *given)
        except RuntimeError:
            logger.warning("the event loop is closed; what the engine gave has no reader")

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        self._hand_over([each for each in deliveries if not self._is_stored_first(each)])

    def _is_stored_first(self, delivery: Delivery) -> bool:
        """Begin to store what a whole call gave, if it asked for that; it ends with the write."""
        placement, report = delivery.call.call.store, delivery.report
        if self._writes is None or placement is None or report is None or report.outcome != "ok":
            return False
        answer = self._answers.pop(delivery.call, None)
        if answer is None:
            return False
        settle = partial(self._settle, answer, delivery, report)
        self._writes.begin(delivery.call, placement, delivery.events, settle)
        return True

    def _settle(
        self,
        answer: LoopAnswer,
        delivery: Delivery,
        report: CallReport,
        error: HeadpondError | None,
    ) -> None:
        """End a call whose write is over."""
        total_s = self._clock() - delivery.call.arrived_s
        # The write is part of handing the outputs over.
        phases_s = {**report.phases_s, self._intake.delivery_phase: total_s - report.total_s}
        late = replace(report, total_s=total_s, phases_s=phases_s)
        try:
            self._observer(late if error is None else replace(late, outcome=outcome(error)))
        finally:
            answer.end(() if error is not None else delivery.events, error)

    def _hand_over(self, deliveries: Sequence[Delivery]) -> None:
        # Reports go first, so that who has read the end finds it counted; an observer that
        # raises spoils no delivery.
        try:
            for delivery in deliveries:
                if delivery.report is not None and delivery.call in self._answers:
                    self._observer(delivery.report)
        finally:
            for delivery in deliveries:
                if delivery.report is None:
                    if (answer := self._answers.get(delivery.call)) is not None:
                        answer.push(delivery.events)
                elif (answer := self._forget(delivery.call)) is not None:
                    answer.end(delivery.events, delivery.error)

    def _forget(self, live: LiveCall) -> LoopAnswer | None:
        """Take out the answer of a call that is over and has nothing to store."""
        if self._writes is not None:
            self._writes.leave(live)
        return self._answers.pop(live, None)

    def _abandon(self) -> None:
        """End what the engine will never end: it is stuck, or its thread is gone."""
        for live in list(self._answers):
            self._give_up(live, live.failure or WorkerLost())

    def _give_up(self, live: LiveCall, error: HeadpondError) -> None:
        answer = self._forget(live)
        for item in live.items:
            if item.stage is not Stage.OVER:
                item.work = self._worker.work_done(item)
        report = replace(live.report(self._clock()), outcome=outcome(error))
        if answer is not None:
            answer.end((), error)
        self._observer(report)


def slots_of(max_slots: int | None) -> int:
    """Return how many items a continuous loop runs at once, where a deployment may not say."""
    return max_slots or DEFAULT_SLOTS


def loop_for(  # noqa: PLR0913 - what a deployment decides, by keyword
    record: WorkloadRecord,
    engine: Engine | FormedEngine,
    state: StateModel,
    *,
    state_bytes: int,
    max_slots: int | None = None,
    bundle: str,
    observer: Callable[[CallReport], None],
    clock: Callable[[], float] = time.monotonic,
    max_wait_s: float | None = None,
    tenant_weights: Mapping[str, float] = MappingProxyType({}),
    limits: Mapping[str, int] = MappingProxyType({}),
    planners: int = 1,
    stuck_after_s: float = 30.0,
    writes: WriteThrough | None = None,
) -> Loop:
    """Return the loop that a record's batching asks for; nothing runs before `start`.

    Args:
        record: The workload.
        engine: Of the kind that the batching says. Called from the loop's own threads, but
            for the pure `plan`.
        state: The record's state, bound to the bundle.
        state_bytes: The budget of retained state, or of what all batches under way hold.
        max_slots: The most items that run at once, or in one batch. `DEFAULT_SLOTS`, or
            what the batch's budget allows, when absent.
        bundle: `name@version+digest12`, as callers see it.
        observer: Gets one report for each offered call, on the event loop's thread.
        clock: Monotonic seconds.
        max_wait_s: Calls whose work would begin later are refused, unless they are batch
            work; None as the record says.
        tenant_weights: Shares of tenants that don't weigh 1.
        limits: The bundle's own limits, tighter than the model's.
        planners: Threads for plans that take long.
        stuck_after_s: A turn or a batch that takes longer means a stuck engine.
        writes: Stores what calls ask for, on the same clock; None where there is no store.
    """

    def work(deliver: Deliver, ended: Callable[[], None]) -> Worker:
        if isinstance(record.batching, Continuous):
            return EngineThread(
                Scheduler(
                    record,
                    state,
                    state_bytes=state_bytes,
                    max_slots=slots_of(max_slots),
                    max_wait_s=max_wait_s,
                    tenant_weights=tenant_weights,
                ),
                cast("Engine", engine),
                clock=clock,
                stuck_after_s=stuck_after_s,
                deliver=deliver,
                ended=ended,
            )
        formed = cast("FormedEngine", engine)
        return Lanes(
            Batcher(
                record,
                state,
                budget=formed.budget,
                state_bytes=state_bytes,
                max_items=max_slots,
                lanes=formed.lanes,
                max_wait_s=max_wait_s,
                tenant_weights=tenant_weights,
            ),
            formed,
            clock=clock,
            stuck_after_s=stuck_after_s,
            deliver=deliver,
            ended=ended,
        )

    feed = record.batching.feed if isinstance(record.batching, Continuous) else None
    intake = Intake(record, engine, Limits(record, state.symbols, limits), bundle=bundle)
    return Loop(
        work,
        intake,
        Planner(intake, clock, threads=planners, tenant_weights=tenant_weights),
        observer=observer,
        clock=clock,
        stuck_after_s=stuck_after_s,
        ahead=0 if feed is None else feed.ahead,
        writes=writes,
    )
