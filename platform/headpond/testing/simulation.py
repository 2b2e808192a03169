"""The continuous loop without thread, event loop or time: one call at a time, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from headpond.admission.limits import Limits
from headpond.bundle.contract import Contract
from headpond.call import Call, Event
from headpond.errors import HeadpondError, RequestCancelled
from headpond.record import (
    Bounds,
    Continuous,
    Dim,
    Fit,
    Limiter,
    Overload,
    Phase,
    PhaseKind,
    RequestShape,
    Shape,
    ThroughputUnit,
    WorkloadRecord,
)
from headpond.scheduling.driver import Driver
from headpond.scheduling.intake import Intake
from headpond.scheduling.scheduler import Scheduler
from headpond.scheduling.sequence import Delivery, Engine, LiveCall
from headpond.state import StateTerm
from headpond.telemetry.report import CallReport
from headpond.testing.clock import FakeClock
from headpond.units import Work, WorkUnit


def simulated_cost(shape: Shape) -> Work:
    """Return what an item of the simulated engine costs."""
    read = max(shape["prompt_units"] - shape["cached_units"], 1)
    return Work(read=read, written=shape["output_units"])


def simulated_record(
    *,
    queue_limit: int = 10_000,
    step_budget: int = 16,
    granule: int = 4,
    deadline_s: float = 60.0,
    wait_s: float | None = None,
    gap_s: float | None = None,
) -> WorkloadRecord:
    """Return the record of `SimulatedEngine`; one unit of state is one byte."""
    return WorkloadRecord(
        name="simulated",
        summary="Nothing, but by all the rules.",
        routes=(),
        request=RequestShape(
            dims=(
                Dim(name="prompt_units", summary="units to read", limit="most_units", param="in"),
                Dim(name="output_units", summary="units to write", param="out"),
                Dim(name="cached_units", summary="units that will be found"),
            ),
            max_items=64,
        ),
        units=(
            WorkUnit(name="read", summary="unit that was read"),
            WorkUnit(name="written", summary="output that was given"),
        ),
        cost=simulated_cost,
        symbols=("most_units",),
        state=(StateTerm(name="cells", shape=("units",), dtype="uint8"),),
        batching=Continuous(
            axis="units",
            extent=("prompt_units", "output_units"),
            first_phase="prompt_units",
            cached="cached_units",
            compatible_by=("key",),
            granule=granule,
            step_budget=step_budget,
        ),
        throughput=(
            ThroughputUnit(unit="written", bounds=Bounds(gap_s=gap_s), quality="equal outputs"),
        ),
        phases=(
            Phase(name="validate", kind=PhaseKind.HOST),
            Phase(name="parse", kind=PhaseKind.HOST),
            Phase(name="queue", kind=PhaseKind.QUEUE),
            Phase(name="read", kind=PhaseKind.DEVICE),
            Phase(name="write", kind=PhaseKind.DEVICE),
            Phase(name="delivery", kind=PhaseKind.DELIVERY),
        ),
        fit=Fit(devices=("cpu",), dtypes=("uint8",), limited_by=Limiter.COMPUTE, static_bytes=()),
        overload=Overload(
            queue_limit=Work(written=queue_limit), deadline_s=deadline_s, wait_s=wait_s
        ),
        contracts=(Contract(name="outputs", vouches_for="simulated engine"),),
        engine="headpond.testing.simulated:SimulatedEngine",
    )


@dataclass(slots=True, eq=False)
class SimulatedCall:
    """An admitted call, and all that its reader got.

    Attributes:
        live: What the scheduler knows of it.
        events: Every event, in order.
        error: What was raised to the reader, when the call failed as a whole.
        reports: One, once the call is over.
    """

    live: LiveCall
    events: list[Event] = field(default_factory=list)
    error: HeadpondError | None = None
    reports: list[CallReport] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether the call has ended."""
        return bool(self.reports)


class SimulatedLoop:
    """Drives any engine of any record by hand; the scheduler and driver are the real ones."""

    def __init__(  # noqa: PLR0913 - what a deployment decides, by keyword
        self,
        record: WorkloadRecord,
        engine: Engine,
        clock: FakeClock,
        *,
        symbols: Mapping[str, int],
        dtype: str = "uint8",
        state_bytes: int = 1 << 20,
        max_slots: int = 16,
        max_wait_s: float | None = None,
        tenant_weights: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Put the parts together, as `ContinuousLoop` does.

        Args:
            record: The workload.
            engine: Its engine.
            clock: Time, moved on by the engine or the test.
            symbols: What the bundle binds.
            dtype: The bundle's compute dtype.
            state_bytes: The budget of retained state.
            max_slots: The most items that run at once.
            max_wait_s: The longest wait that is accepted.
            tenant_weights: Shares of tenants that don't weigh 1.
        """
        state = record.bind(symbols, dtype)
        self.scheduler = Scheduler(
            record,
            state,
            state_bytes=state_bytes,
            max_slots=max_slots,
            max_wait_s=max_wait_s,
            tenant_weights=tenant_weights,
        )
        self._clock = clock
        self._intake = Intake(record, engine, Limits(record, symbols, {}), bundle="simulated@1+0")
        self._driver = Driver(engine, self.scheduler, clock, self._deliver)
        self._calls: dict[LiveCall, SimulatedCall] = {}

    def submit(self, call: Call) -> SimulatedCall:
        """Plan and admit a call.

        Raises:
            HeadpondError: Refused.
        """
        live = self._intake.open(call, self._clock())
        live.items = self._intake.plan(live, 0, len(call.items))
        self._intake.close(live, self._clock())
        delivery = self.scheduler.offer(live, self._clock())
        served = self._calls[live] = SimulatedCall(live)
        if delivery is not None:
            self._deliver((delivery,))
        return served

    def cancel(self, call: SimulatedCall) -> None:
        """Let a call go, as a reader that closes does."""
        self.scheduler.cancel(call.live, RequestCancelled())

    def turn(self) -> None:
        """Do one turn and hand out what it gave."""
        self._driver.turn()

    def run(self, most_turns: int = 10_000) -> None:
        """Do turns until every call is over.

        Raises:
            TimeoutError: After `most_turns` turns some calls are not.
        """
        for _ in range(most_turns):
            if not self.scheduler.calls:
                return
            self.turn()
        raise TimeoutError(f"{len(self.scheduler.calls)} calls go on after {most_turns} turns")

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            call = self._calls[delivery.call]
            call.events.extend(delivery.events)
            if delivery.report is not None:
                call.reports.append(delivery.report)
                call.error = delivery.error
