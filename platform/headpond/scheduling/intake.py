"""Intake: a call in, planned and measured items out, or a refusal before any work."""

from __future__ import annotations

from headpond.admission.limits import Limits
from headpond.call import Accepted, Call
from headpond.engine import Plan
from headpond.errors import HeadpondError
from headpond.record import Continuous, PhaseKind, WorkloadRecord
from headpond.scheduling.border import attempt
from headpond.scheduling.sequence import Engine, Item, LiveCall
from headpond.telemetry.timeline import Timeline
from headpond.units import Work


class Intake:
    """Plans calls for one engine. Touches no state but the engine's pure `plan`."""

    def __init__(
        self,
        record: WorkloadRecord,
        engine: Engine,
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
        # The first phase of a record is validation, the last delivery: neither is ours.
        self._phases = tuple(phase.name for phase in record.phases[1:-1])
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

    def plan(self, live: LiveCall) -> None:
        """Plan every item of a call; may take as long as tokenizing does.

        Raises:
            HeadpondError: The engine or the limits refuse an item.
        """
        for index, given in enumerate(live.call.items):
            item = attempt(self._plan, live, index, given)
            if isinstance(item, HeadpondError):
                raise item
            live.items.append(item)

    def close(self, live: LiveCall, now_s: float) -> None:
        """Add up what a planned call can cost, and let it enter the queue phase."""
        live.accepted = Accepted(bundle=self._bundle, model=live.call.model, work=live.work())
        live.timeline.enter(self._queue_phase, now_s)

    def _plan(self, live: LiveCall, index: int, given: object) -> Item:
        plan: Plan[object] = self._engine.plan(given, live.call.tenant)
        shape = plan.shape
        self._limits.check_shape(shape)
        work = self._cost(shape)
        return Item(
            call=live,
            index=index,
            plan=plan,
            work=work,
            weight=work.weigh(self._units),
            extent=sum(shape[dim] for dim in self._extent),
            first_left=shape[self._first] if self._first else 0,
        )
