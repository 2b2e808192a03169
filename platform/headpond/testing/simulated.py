"""A simulated engine: no model, no time, every rule of the protocol checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headpond.engine import Immediate, Plan, Progress, Quantum
from headpond.errors import EngineFailed, InvalidRequest
from headpond.testing.clock import FakeClock
from headpond.units import Work

Trouble = Literal["refuse", "plan", "start", "step", "error", "preempt", "release"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedItem:
    """Work for the simulated engine: `prompt` units to read, then outputs one by one.

    Attributes:
        name: Outputs are `name:0`, `name:1`, ...
        prompt: Units of its first phase.
        outputs: How many it gives. The last step of the first phase gives the first.
        most_outputs: How many it declares; as many as it gives unless said.
        cached: Units of its beginning that are found instead of computed.
        foreseen: How many of them planning knows of; all unless said.
        drafts: The most outputs that a step gives besides the one that is due, within the
            state that is reserved.
        immediate: Whether planning answers it with all its outputs.
        key: Items with equal keys share steps.
        trouble: Where it fails: its plan is refused or raises, its start raises, every step
            that it is part of raises, one step gives an error for it, or the engine raises
            when it is preempted or released.
        trouble_at: From which output on a `step` or `error` trouble shows.
    """

    name: str
    prompt: int = 1
    outputs: int = 1
    most_outputs: int | None = None
    cached: int = 0
    foreseen: int | None = None
    drafts: int = 0
    immediate: bool = False
    key: str = ""
    trouble: Trouble | None = None
    trouble_at: int = 0

    @property
    def read(self) -> int:
        """Units of its first phase that have to be computed."""
        return self.prompt - min(self.cached, self.prompt - 1)

    def expected(self) -> list[str]:
        """Return the outputs it gives when all goes well."""
        return [f"{self.name}:{index}" for index in range(self.outputs)]


@dataclass(slots=True, eq=False)
class SimulatedSlot:
    """One started item.

    Attributes:
        item: What is computed.
        again: Units of lost state to be worked off again.
        prompt_left: Units of the first phase to be worked off.
        skipped: Units of the first phase that were found.
        given: Outputs so far.
        held: Units of state now.
        over: Whether it finished or failed.
        released: Whether it was released.
    """

    item: SimulatedItem
    again: int = 0
    prompt_left: int = 0
    skipped: int = 0
    given: int = 0
    held: int = 0
    over: bool = False
    released: bool = False


class Misuse(Exception):
    """The caller of an engine broke its protocol."""


class SimulatedEngine:
    """Advances slots on a fake clock, and refuses every misuse of the protocol.

    Attributes:
        misuses: Every rule that was broken; a caller may have swallowed the exception.
        steps: The names and units of each step, failed ones too.
        slots: Every slot that was started.
        preemptions: How often a slot lost its state.
    """

    def __init__(
        self,
        clock: FakeClock,
        *,
        step_s: float = 0.01,
        unit_s: float = 0.0,
        granule: int = 1,
        capacity: int | None = None,
        max_slots: int | None = None,
    ) -> None:
        """Start without slots.

        Args:
            clock: Moved on by every step.
            step_s: What a step costs.
            unit_s: What each unit that is computed in it costs besides.
            granule: State is held in multiples of this.
            capacity: Units of state there are; holding more is a misuse.
            max_slots: Slots a step may have; more is a misuse.
        """
        self.misuses: list[str] = []
        self.steps: list[dict[str, int]] = []
        self.slots: list[SimulatedSlot] = []
        self.preemptions = 0
        self._open: dict[SimulatedSlot, None] = {}
        self._clock = clock
        self._step_s = step_s
        self._unit_s = unit_s
        self._granule = granule
        self._capacity = capacity
        self._max_slots = max_slots

    @property
    def open_slots(self) -> list[SimulatedSlot]:
        """The slots that were started and not released."""
        return list(self._open)

    def tallies(self) -> Mapping[str, int]:
        """Count nothing."""
        return {}

    def plan(self, item: SimulatedItem, namespace: str) -> Plan[SimulatedItem]:
        """Say what an item takes."""
        if item.trouble == "refuse":
            raise InvalidRequest("this item is refused", param="trouble")
        if item.trouble == "plan":
            raise RuntimeError(f"cannot plan {item.name}")
        most = item.outputs if item.most_outputs is None else item.most_outputs
        foreseen = item.cached if item.foreseen is None else item.foreseen
        shape = {"prompt_units": item.prompt, "output_units": most, "cached_units": foreseen}
        answer = None
        if item.immediate:
            answer = Immediate(outputs=tuple(item.expected()), work=Work(written=item.outputs))
        return Plan(shape=shape, prepared=item, key=(item.key,), answer=answer)

    def start(self, plan: Plan[SimulatedItem]) -> SimulatedSlot:
        """Return a slot that holds nothing yet."""
        item = plan.prepared
        self._check(not item.immediate, "started what was answered")
        if item.trouble == "start":
            raise RuntimeError(f"cannot start {item.name}")
        slot = SimulatedSlot(item=item, prompt_left=item.prompt)
        self.slots.append(slot)
        self._open[slot] = None
        return slot

    def step(self, quanta: Sequence[Quantum[SimulatedSlot]]) -> list[Progress[str]]:
        """Advance every slot, or raise and advance none."""
        self._check_step(quanta)
        self.steps.append({quantum.slot.item.name: quantum.units for quantum in quanta})
        self._clock.advance(self._step_s)
        for quantum in quanta:
            item = quantum.slot.item
            if item.trouble == "step" and quantum.slot.given >= item.trouble_at:
                raise RuntimeError(f"{item.name} is poison")
        progress = [self._advance(quantum.slot, quantum.units) for quantum in quanta]
        self._clock.advance(
            self._unit_s * sum(each.units - (each.skipped or 0) for each in progress)
        )
        self._check_capacity()
        return progress

    def preempt(self, slot: SimulatedSlot) -> int:
        """Drop a slot's state and return how much of it comes again."""
        self._check(not slot.released and not slot.over, "preempted a slot that is over")
        self._check(len(self._open) > 1, "preempted the only slot")
        if slot.item.trouble == "preempt":
            raise RuntimeError(f"cannot preempt {slot.item.name}")
        self.preemptions += 1
        again = slot.held
        slot.again += again
        slot.held = 0
        return again

    def release(self, slot: SimulatedSlot) -> None:
        """Free a slot."""
        self._check(not slot.released, "released a slot twice")
        slot.released, slot.held = True, 0
        del self._open[slot]
        if slot.item.trouble == "release":
            raise RuntimeError(f"cannot release {slot.item.name}")

    def _check(self, kept: bool, rule: str) -> None:
        if not kept:
            self.misuses.append(rule)
            raise Misuse(rule)

    def _check_step(self, quanta: Sequence[Quantum[SimulatedSlot]]) -> None:
        slots = [quantum.slot for quantum in quanta]
        self._check(bool(slots), "stepped nothing")
        self._check(len({id(slot) for slot in slots}) == len(slots), "stepped a slot twice")
        self._check(len({slot.item.key for slot in slots}) == 1, "mixed keys in one step")
        self._check(not any(slot.released for slot in slots), "stepped a released slot")
        self._check(not any(slot.over for slot in slots), "stepped a slot that is over")
        limit = self._max_slots
        self._check(limit is None or len(slots) <= limit, "stepped more than max_slots")
        for quantum in quanta:
            first = quantum.slot.again + quantum.slot.prompt_left
            self._check(1 <= quantum.units <= max(first, 1), "stepped further than it can go")

    def _check_capacity(self) -> None:
        held = sum(-(-slot.held // self._granule) * self._granule for slot in self._open)
        within = self._capacity is None or held <= self._capacity
        self._check(within, "held more state than there is")

    def _advance(self, slot: SimulatedSlot, units: int) -> Progress[str]:
        item = slot.item
        if item.trouble == "error" and slot.given >= item.trouble_at:
            slot.over = True
            return Progress(units=0, error=EngineFailed(f"{item.name} is not finite"))
        left = slot.again + slot.prompt_left
        skipped = min(item.cached, left - 1) if left and not slot.held else 0
        passed = skipped + min(units, left - skipped) if left else 1
        slot.held += passed
        if left:
            again = min(slot.again, passed)
            slot.again -= again
            slot.prompt_left -= passed - again
            slot.skipped = max(slot.skipped, skipped if not slot.given else 0)
            if slot.again or slot.prompt_left or slot.given:
                return Progress(units=passed, skipped=skipped)
        outputs = self._outputs(slot, drafts=0 if left else item.drafts)
        slot.held += len(outputs) - 1
        return Progress(
            outputs=outputs,
            units=passed + len(outputs) - 1,
            skipped=skipped,
            phase="write" if outputs[0].endswith(":0") else None,
            finished=_work(slot) if slot.over else None,
        )

    def _outputs(self, slot: SimulatedSlot, drafts: int) -> tuple[str, ...]:
        """Give the output that is due, and as many drafts as have room in the last granule."""
        room = -slot.held % self._granule
        count = min(1 + min(drafts, room), slot.item.outputs - slot.given)
        first, slot.given = slot.given, slot.given + count
        slot.over = slot.given >= slot.item.outputs
        return tuple(f"{slot.item.name}:{at}" for at in range(first, slot.given))


def _work(slot: SimulatedSlot) -> Work:
    return Work(read=slot.item.prompt - slot.skipped, written=slot.given)
