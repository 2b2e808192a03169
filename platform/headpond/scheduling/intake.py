"""Intake: a call in, planned and measured items out, or a refusal before any work."""

from __future__ import annotations

from itertools import islice
from typing import Any

from headpond.admission.limits import Limits
from headpond.call import Accepted, Call
from headpond.engine import Plan, Planning
from headpond.errors import EngineFailed, HeadpondError
from headpond.record import Continuous, PhaseKind, Shape, WorkloadRecord
from headpond.scheduling.border import attempt
from headpond.scheduling.inlet import Inlet
from headpond.scheduling.meter import Meter
from headpond.scheduling.sequence import Item, LiveCall, worked_off
from headpond.telemetry.timeline import Timeline
from headpond.units import Work


class Intake:
    """Plans calls for one engine of either loop. Calls its pure `plan` only.

    Attributes:
        planning_phase: The phase that a call is in while it is planned.
        delivery_phase: The phase that is left when all is computed.
    """

    def __init__(
        self,
        record: WorkloadRecord,
        engine: Planning[Any, Any],
        limits: Limits,
        *,
        bundle: str,
    ) -> None:
        """Derive from the record what every call needs.

        Args:
            record: The workload.
            engine: Whose `plan` validates items.
            limits: The record's limits, bound to the bundle.
            bundle: What `Accepted.bundle` says.
        """
        batching = record.batching
        self._engine = engine
        self._cost = record.cost
        self._units = record.units_by_name
        self._limits = limits
        self._extent = batching.extent if isinstance(batching, Continuous) else ()
        self._first = batching.first_phase if isinstance(batching, Continuous) else None
        self._cached = batching.cached if isinstance(batching, Continuous) else None
        self._feed = batching.feed if isinstance(batching, Continuous) else None
        # The first phase of a record is validation, the last delivery: neither is ours.
        self._phases = tuple(phase.name for phase in record.phases[1:-1])
        self.planning_phase = self._phases[0]
        self.delivery_phase = record.phases[-1].name
        self._queue_phase = next(p.name for p in record.phases if p.kind is PhaseKind.QUEUE)
        self._bundle = bundle

    def open(self, call: Call, now_s: float) -> LiveCall:
        """Begin a call in its first phase, with nothing planned yet.

        Raises:
            InvalidRequest: It holds no items, or too many.
        """
        self._limits.check_items(len(call.items))
        return LiveCall(
            call=call,
            accepted=Accepted(bundle=self._bundle, model=call.model, work=Work()),
            arrived_s=now_s,
            timeline=Timeline(self._phases, now_s),
        )

    def plan(self, live: LiveCall, start: int, end: int) -> list[Item]:
        """Plan some items of a call; may take as long as tokenizing does.

        Args:
            live: The call.
            start: The first of its items that is planned.
            end: The one behind the last.

        Raises:
            HeadpondError: The engine or the limits refuse an item.
        """
        planned = []
        for index, given in islice(enumerate(live.call.items), start, end):
            item = attempt(self._plan, live, index, given)
            if isinstance(item, HeadpondError):
                raise item
            planned.append(item)
        return planned

    def close(self, live: LiveCall, now_s: float) -> None:
        """Add up what a planned call can cost, and let it enter the queue phase.

        A call that is answered already stays where it is.

        Raises:
            PayloadTooLarge: Its items are too much together.
        """
        self._limits.check_call([item.plan.shape for item in live.asked])
        live.accepted = Accepted(bundle=self._bundle, model=live.call.model, work=live.work())
        if not live.answered:
            live.timeline.enter(self._queue_phase, now_s)

    def _plan(self, live: LiveCall, index: int, given: object) -> Item:
        plan: Plan[object] = self._engine.plan(given, live.call.tenant)
        if plan.answer is not None:
            work, meter = plan.answer.work, Meter()
            return Item(call=live, index=index, plan=plan, work=work, meter=meter)
        self._limits.check_shape(plan.shape)
        extent = sum(plan.shape[dim] for dim in self._extent)
        shape = self._priced(plan)
        priced = sum(shape[dim] for dim in self._extent)
        work = self._cost(shape)
        weight = work.weigh(self._units)
        first = shape[self._first] if self._first else 0
        cached = min(shape[self._cached], first) if self._cached else 0
        return Item(
            call=live,
            index=index,
            plan=plan,
            work=work,
            meter=Meter(
                weight=weight,
                first_units=first,
                first_weight=self._weigh_first(shape, first, weight * first / max(priced, 1)),
                extent=priced,
                cached=cached,
            ),
            extent=extent,
            first_left=first,
            cached_left=cached,
            inlet=Inlet(most=extent) if plan.fed else None,
            idle=plan.fed,
        )

    def _priced(self, plan: Plan[object]) -> Shape:
        """Return the shape that an item is admitted with.

        Of one that is fed only what may wait is ever work to be done; the rest is to come.
        """
        if not plan.fed:
            return plan.shape
        if self._feed is None:
            raise EngineFailed("it wants to be fed, which its record does not declare")
        return worked_off(plan.shape, self._extent, self._feed.ahead)

    def _weigh_first(self, shape: Shape, first: int, otherwise: float) -> float:
        """Return what the first phase alone costs, or `otherwise` when `cost` can't say."""
        if not first:
            return 0.0
        work = attempt(self._cost, worked_off(shape, self._extent, first))
        return otherwise if isinstance(work, HeadpondError) else work.weigh(self._units)
