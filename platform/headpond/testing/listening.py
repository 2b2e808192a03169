"""A workload that is fed while it runs, with no model at all: it repeats what it hears."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headpond.bundle.contract import Contract
from headpond.engine import Plan, Progress, Quantum
from headpond.errors import InvalidRequest
from headpond.record import (
    Bounds,
    Continuous,
    Dim,
    Feed,
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
from headpond.state import StateTerm
from headpond.units import Work, WorkUnit

SLOT_BYTES = 8
"""What each item holds, however much it hears."""

GRANULE = 4
"""The most letters that one step hears of an item."""

RATE_PER_S = 40.0
"""Letters a second where input is live: a step hears what came in 0.1 s."""


def heard_cost(shape: Shape) -> Work:
    """Return the letters to be heard."""
    return Work(letters=shape["letters"])


def listening_record(*, ahead: int = 20, queue_limit: int = 1_000) -> WorkloadRecord:
    """Return the record of `ListeningEngine`."""
    return WorkloadRecord(
        name="listening",
        summary="Repeats what it hears.",
        routes=(),
        request=RequestShape(
            dims=(Dim(name="letters", summary="letters it may hear", limit=1_000, param="text"),),
        ),
        units=(WorkUnit(name="letters", summary="letter that was heard"),),
        cost=heard_cost,
        symbols=(),
        state=(StateTerm(name="ear", shape=(SLOT_BYTES,), dtype="uint8"),),
        batching=Continuous(
            axis="letters",
            extent=("letters",),
            granule=GRANULE,
            feed=Feed(rate_per_s=RATE_PER_S, ahead=ahead),
        ),
        throughput=(
            ThroughputUnit(unit="letters", bounds=Bounds(gap_s=1.0), quality="equal letters"),
        ),
        phases=(
            Phase(name="validate", kind=PhaseKind.HOST),
            Phase(name="prepare", kind=PhaseKind.HOST),
            Phase(name="queue", kind=PhaseKind.QUEUE),
            Phase(name="listen", kind=PhaseKind.DEVICE),
            Phase(name="delivery", kind=PhaseKind.DELIVERY),
        ),
        fit=Fit(devices=("cpu",), dtypes=("uint8",), limited_by=Limiter.COMPUTE, static_bytes=()),
        overload=Overload(queue_limit=Work(letters=queue_limit), deadline_s=60.0),
        contracts=(Contract(name="letters", vouches_for="listening"),),
        engine="headpond.testing.listening:ListeningEngine",
    )


Trouble = Literal["feed", "step"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Listener:
    """Something to be heard: a whole text, or what will be fed.

    Attributes:
        text: What is there already.
        live: Whether more comes while it runs.
        most: Letters it may hear, where it is live.
        trouble: Where it fails: when it is fed, or in each step that it is part of.
    """

    text: str = ""
    live: bool = False
    most: int = 1_000
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Letters:
    """Input: more to be heard."""

    text: str


@dataclass(frozen=True, slots=True)
class Silence:
    """Input: nothing more comes."""


@dataclass(slots=True, eq=False)
class Ear:
    """One started item."""

    item: Listener
    unheard: str
    heard: int = 0
    closed: bool = False


class ListeningEngine:
    """Repeats letters, a few a step, and remembers who was in its steps.

    Attributes:
        steps: The number of ears in each step.
        open: Ears that were started and not released.
    """

    def __init__(self, *, on_step: Callable[[int], None] = lambda _: None) -> None:
        """Start with no ears.

        Args:
            on_step: Called in each step with the number of its ears.
        """
        self.steps: list[int] = []
        self.open: dict[Ear, None] = {}
        self._on_step = on_step

    @property
    def symbols(self) -> Mapping[str, int]:
        """Nothing to bind."""
        return {}

    def plan(self, item: Listener, namespace: str) -> Plan[Listener]:
        """Say how much there is to hear."""
        del namespace
        if item.live and item.text:
            raise InvalidRequest("what is live has no text yet", param="text")
        letters = item.most if item.live else len(item.text)
        return Plan(shape={"letters": letters}, prepared=item, fed=item.live)

    def start(self, plan: Plan[Listener]) -> Ear:
        """Open an ear."""
        item = plan.prepared
        ear = Ear(item, item.text, closed=not item.live)
        self.open[ear] = None
        return ear

    def feed(self, slot: Ear, inputs: Sequence[object]) -> None:
        """Take in letters."""
        if slot.item.trouble == "feed":
            raise RuntimeError("cannot be fed")
        for each in inputs:
            if isinstance(each, Letters):
                slot.unheard += each.text
            elif isinstance(each, Silence):
                slot.closed = True
            else:
                raise InvalidRequest("these are no letters", param="input")

    def step(self, quanta: Sequence[Quantum[Ear]]) -> list[Progress[str]]:
        """Hear a few letters of each item."""
        self.steps.append(len(quanta))
        self._on_step(len(quanta))
        if any(quantum.slot.item.trouble == "step" for quantum in quanta):
            raise RuntimeError("cannot hear")
        return [_hear(quantum.slot) for quantum in quanta]

    def preempt(self, slot: Ear) -> int:
        """Forget nothing: what an ear holds does not grow."""
        return slot.heard

    def release(self, slot: Ear) -> None:
        """Close an ear."""
        del self.open[slot]


def _hear(ear: Ear) -> Progress[str]:
    letters, ear.unheard = ear.unheard[:GRANULE], ear.unheard[GRANULE:]
    ear.heard += len(letters)
    over = ear.closed and not ear.unheard
    return Progress(
        outputs=(letters,) if letters else (),
        units=len(letters),
        finished=Work(letters=ear.heard) if over else None,
        idle=not over and not ear.unheard,
    )
