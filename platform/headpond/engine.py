"""The protocols that engines implement: one for each of the two loops.

The continuous loop calls every method from one thread, the engine's own; the loop of formed
batches calls `run` from as many threads as the engine has lanes. `plan` may also be called
from others: it is pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from headpond.errors import HeadpondError
from headpond.units import Work

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

Item_contra = TypeVar("Item_contra", contravariant=True)
Prepared = TypeVar("Prepared")
Slot = TypeVar("Slot")
Payload = TypeVar("Payload")
Slot_co = TypeVar("Slot_co", covariant=True)
Payload_co = TypeVar("Payload_co", covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Immediate:
    """The whole answer to an item that needs no device.

    Attributes:
        outputs: What the caller gets, in order.
        work: What the item came to.
    """

    outputs: tuple[object, ...]
    work: Work = field(default_factory=Work)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan(Generic[Prepared]):
    """What one item will take, before anything is allocated.

    Attributes:
        shape: The item's dimensions, by the names the record declares.
        prepared: Whatever `start` needs, e.g. the token IDs.
        key: Values of the record's `compatible_by`; equal keys share a step.
        answer: The answer, when planning has found it already. Such an item waits for
            nothing and never gets a slot; its shape is not looked at.
        fed: Whether its input comes while it runs, by `Answer.feed`. Its shape then says the
            most that may come. Only where the record's batching has a `feed`.
    """

    shape: Mapping[str, int]
    prepared: Prepared
    key: tuple[Hashable, ...] = ()
    answer: Immediate | None = None
    fed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantum(Generic[Slot_co]):
    """One slot's share of a step.

    Attributes:
        slot: The slot to advance.
        units: How much it may compute along the batching axis: a chunk of its first phase,
            else 1. What it finds computed already comes on top.
    """

    slot: Slot_co
    units: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress(Generic[Payload_co]):
    """What a step did for one slot.

    Attributes:
        outputs: What the caller gets, in order.
        units: How far the slot went along the axis: its quantum, or less, or, within the
            state that is reserved for it, more (a cached prefix, accepted drafts).
        skipped: How many of these units took no work, as they were there already (a cached
            prefix). Said when they are passed, so that speed is not mistaken. None where the
            engine does not say: of a first phase it is then what goes beyond the quantum.
        phase: The record's phase the slot is in from now on, when that changed.
        finished: The work the item came to, when this was its last step.
        idle: Whether the slot can't go on until it is fed again. Only of items that are fed.
        error: Why this slot ends here without a result; the others are untouched.
    """

    outputs: tuple[Payload_co, ...] = ()
    units: int = 1
    skipped: int | None = None
    phase: str | None = None
    finished: Work | None = None
    idle: bool = False
    error: HeadpondError | None = None


def may_wait(item: object) -> bool:
    """Say whether planning an item may wait for something else than this process's CPU.

    An item of which that is true says so by a property `may_wait`; it is then planned where
    it holds up nobody.
    """
    return getattr(item, "may_wait", False) is True


def is_lost(engine: object) -> bool:
    """Say whether an engine has lost a process that it computes with: it never steps again.

    An engine of which that may become true says so by a property `lost`. Its steps then raise
    `WorkerLost`, and its replica makes way for another one.
    """
    return getattr(engine, "lost", False) is True


class Planning(Protocol[Item_contra, Prepared]):
    """The part of an engine that needs no device; both kinds have it."""

    def plan(self, item: Item_contra, namespace: str) -> Plan[Prepared]:
        """Validate an item against the model and say what it will take. Pure; no device.

        Costly preparation (tokenizing, decoding an image) belongs here: it runs in threads
        of its own, beside the engine's.

        Args:
            item: What is asked for.
            namespace: Whose it is. Items of one namespace may share retained state; what
                others computed must never show, not even in time.

        Raises:
            InvalidRequest: The model cannot do this; names the field.
        """
        ...


class ContinuousEngine(
    Planning[Item_contra, Prepared], Protocol[Item_contra, Prepared, Slot, Payload_co]
):
    """Work that stays for many steps, holds state, and shares each step with others."""

    def start(self, plan: Plan[Prepared]) -> Slot:
        """Allocate the state of an item and return its slot."""
        ...

    def step(self, quanta: Sequence[Quantum[Slot]]) -> Sequence[Progress[Payload_co]]:
        """Advance every slot by about its quantum, in one forward for all of them.

        All slots have equal keys. Results come in the order of the quanta. A slot that
        can't be computed says so in its own `Progress.error`. When the step as a whole
        raises, no slot has advanced, and the loop may step smaller groups again.
        """
        ...

    def preempt(self, slot: Slot) -> int:
        """Drop the device state of a slot but keep its progress.

        Returns the units along the axis to be worked off again, as a first phase, before
        the slot goes on where it was. Outputs already given are not given again.
        """
        ...

    def release(self, slot: Slot) -> None:
        """Free everything a slot holds. Called exactly once for each started slot."""
        ...


class FedEngine(
    ContinuousEngine[Item_contra, Prepared, Slot, Payload_co],
    Protocol[Item_contra, Prepared, Slot, Payload_co],
):
    """A continuous engine whose items may get their input while they run."""

    def feed(self, slot: Slot, inputs: Sequence[object]) -> None:
        """Take in what came for a slot, in order; computes nothing that takes long.

        Called before the step that may use it. What is wrong with an input is said by the
        slot's next `Progress.error`, or raised here: then the item fails.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome(Generic[Payload_co]):
    """What a batch gave for one of its items.

    Attributes:
        outputs: What the caller gets, in order.
        work: What the item came to; None for what it was admitted with.
        error: Why the item has no result; the others of its batch are untouched.
    """

    outputs: tuple[Payload_co, ...] = ()
    work: Work | None = None
    error: HeadpondError | None = None


class FormedEngine(Planning[Item_contra, Prepared], Protocol[Item_contra, Prepared, Payload_co]):
    """Work that finishes in one forward, over a batch that is formed first."""

    @property
    def lanes(self) -> int:
        """How many batches at once keep its device busy, each in a thread of its own.

        At least 1.
        """
        ...

    @property
    def express_lanes(self) -> int:
        """How many more batches it can run beside these: as many, or none.

        Then small calls have lanes of their own, and share the device with large ones instead
        of waiting for them. 0 where batches would only get into each other's way.
        """
        ...

    @property
    def budget(self) -> int:
        """The units along the batching axis that one batch should hold, at least 1.

        No more than the record's; one item alone may be larger.
        """
        ...

    def run(self, batch: Sequence[Plan[Prepared]]) -> Sequence[Outcome[Payload_co]]:
        """Compute a batch: one forward. Results come in the order of the batch.

        All plans have equal keys. An item that can't be computed says so in its own
        `Outcome.error`. When the batch as a whole raises, nobody has a result, and the loop
        may run smaller batches again.
        """
        ...


class Checked(Protocol):
    """What the deployment asks of every engine once it is loaded."""

    @property
    def symbols(self) -> Mapping[str, int]:
        """What the loaded model really is, in the record's symbols."""
        ...

    def tallies(self) -> Mapping[str, int]:
        """Return the record's tallies, counted since the start; they only ever grow.

        Called from other threads, also amid a step.
        """
        ...

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Compute a fixture's input and return a value for each of the record's contracts."""
        ...


class Loaded(ContinuousEngine[Item_contra, Prepared, Slot, Payload_co], Checked, Protocol):
    """An engine of the continuous loop, as the deployment gets it."""


class LoadedFormed(FormedEngine[Item_contra, Prepared, Payload_co], Checked, Protocol):
    """An engine of the loop of formed batches, as the deployment gets it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """What a deployment decides about an engine; the bundle decides the rest.

    Attributes:
        state_bytes: Memory for retained state; the loop never admits more.
        max_slots: The most slots the loop will step at once.
        device: `cpu`, `cuda` or `cuda:<index>`; must be among the record's devices.
        threads: Compute threads of each process that computes, never more than free cores.
        tensor_parallel: How many devices share the model, each with a process of its own;
            more than 1 only where the record's `fit.tensor_parallel` says so.
    """

    state_bytes: int
    max_slots: int = 64
    device: str = "cpu"
    threads: int = 1
    tensor_parallel: int = 1
