"""A workload of formed batches with no model at all: it says how long texts are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from headpond.bundle.contract import Contract
from headpond.engine import Immediate, Outcome, Plan
from headpond.errors import EngineFailed, InvalidRequest
from headpond.record import (
    Bounds,
    Dim,
    Fit,
    Formed,
    Limiter,
    Overload,
    Phase,
    PhaseKind,
    RequestShape,
    Shape,
    ThroughputUnit,
    WorkloadRecord,
)
from headpond.state import Lifetime, StateTerm
from headpond.units import Work, WorkUnit

Trouble = Literal["refuse", "run", "error"]


def measured_cost(shape: Shape) -> Work:
    """Return the letters to be counted."""
    return Work(letters=shape["letters"])


def measuring_record(
    *, budget: int = 100, queue_limit: int = 10_000, wait_s: float | None = None
) -> WorkloadRecord:
    """Return the record of `MeasuringEngine`; one letter of state is one byte."""
    return WorkloadRecord(
        name="measuring",
        summary="Says how long texts are.",
        routes=(),
        request=RequestShape(
            dims=(Dim(name="letters", summary="letters of the text", limit=1_000, param="text"),),
            max_items=4096,
        ),
        units=(WorkUnit(name="letters", summary="letter that was counted"),),
        cost=measured_cost,
        symbols=(),
        state=(
            StateTerm(name="text", shape=("letters",), dtype="uint8", lifetime=Lifetime.FORWARD),
        ),
        batching=Formed(axis="letters", budget=budget, bucket_by=("language",)),
        throughput=(
            ThroughputUnit(unit="letters", bounds=Bounds(total_s=1.0), quality="counts are right"),
        ),
        phases=(
            Phase(name="validate", kind=PhaseKind.HOST, summary="check the request"),
            Phase(name="read", kind=PhaseKind.HOST, summary="find the letters"),
            Phase(name="queue", kind=PhaseKind.QUEUE, summary="wait for a batch"),
            Phase(name="count", kind=PhaseKind.DEVICE, summary="count"),
            Phase(name="delivery", kind=PhaseKind.DELIVERY, summary="hand it over"),
        ),
        fit=Fit(devices=("cpu",), dtypes=("uint8",), limited_by=Limiter.COMPUTE, static_bytes=()),
        overload=Overload(queue_limit=Work(letters=queue_limit), deadline_s=60.0, wait_s=wait_s),
        contracts=(Contract(name="length", vouches_for="counting"),),
        engine="headpond.testing.formed:MeasuringEngine",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuringItem:
    """A text to be measured.

    Attributes:
        text: The text.
        language: Texts of one language share a batch.
        immediate: Whether planning answers it.
        trouble: Where it fails: its plan is refused, each batch that holds it raises, or it
            alone has an error.
    """

    text: str
    language: str = ""
    immediate: bool = False
    trouble: Trouble | None = None


class MeasuringEngine:
    """Counts letters, and remembers its batches."""

    def __init__(
        self,
        *,
        lanes: int = 1,
        express_lanes: int = 0,
        budget: int = 100,
        on_run: Callable[[], None] = lambda: None,
    ) -> None:
        """Start with no batches.

        Args:
            lanes: Batches at once.
            express_lanes: Batches of small calls beside these.
            budget: Letters in a batch.
            on_run: Called in each batch, on its lane's thread.
        """
        self._lanes = lanes
        self._express_lanes = express_lanes
        self._budget = budget
        self._on_run = on_run
        self.batches: list[list[str]] = []

    @property
    def lanes(self) -> int:
        """Batches at once."""
        return self._lanes

    @property
    def express_lanes(self) -> int:
        """Batches of small calls beside these."""
        return self._express_lanes

    @property
    def budget(self) -> int:
        """Letters in a batch."""
        return self._budget

    def plan(self, item: MeasuringItem, namespace: str) -> Plan[MeasuringItem]:
        """Find the letters."""
        del namespace
        if item.trouble == "refuse":
            raise InvalidRequest("no", param="text")
        length = len(item.text)
        answer = Immediate(outputs=(length,)) if item.immediate else None
        return Plan(shape={"letters": length}, prepared=item, key=(item.language,), answer=answer)

    def run(self, batch: Sequence[Plan[MeasuringItem]]) -> list[Outcome[int]]:
        """Count the letters of each text."""
        self._on_run()
        items = [plan.prepared for plan in batch]
        self.batches.append([item.text for item in items])
        if len({item.language for item in items}) > 1:
            raise EngineFailed("the batch holds two languages")
        if any(item.trouble == "run" for item in items):
            raise RuntimeError("the batch cannot be counted")
        return [_outcome(item) for item in items]


def _outcome(item: MeasuringItem) -> Outcome[int]:
    if item.trouble == "error":
        return Outcome(error=EngineFailed("this text cannot be counted"))
    length = len(item.text)
    return Outcome(outputs=(length,), work=Work(letters=length))
