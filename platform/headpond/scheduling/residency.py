"""Who holds state: the running items, those that lost theirs, and the budget between."""

from __future__ import annotations

from headpond.admission.ledger import Ledger
from headpond.call import Priority
from headpond.scheduling.roster import Roster
from headpond.scheduling.sequence import Item, Stage
from headpond.state import StateModel

_KEPT_FREE = 8
"""Batch work leaves one slot in so many to those who wait for an answer."""


class Residency:
    """Reserves state before the step that needs it, in granules, within one budget.

    Entering reserves the first phase and one granule, not the maximum. When growth finds
    no room, the lowest priority, then the youngest, loses its state, and enters again
    later. The last running item never loses its state: any item fits alone.
    """

    def __init__(
        self, state: StateModel, *, state_bytes: int, max_slots: int, stride: int = 1
    ) -> None:
        """Start empty.

        Args:
            state: The record's state, bound to the bundle.
            state_bytes: The budget.
            max_slots: The most items that run at once.
            stride: Units that an item past its first phase may go on in one step.
        """
        self._state = state
        self._stride = stride
        self._max_slots = max_slots
        self.ledger = Ledger(state_bytes)
        self.roster = Roster()
        self.preempted: list[Item] = []
        self.preemptions = 0

    def most_bytes(self, item: Item) -> int:
        """Return the bytes an item holds at its extent."""
        return self._bytes(item, item.extent)

    @property
    def free_slots(self) -> int:
        """How many items could run besides, if only slots counted; none while others lack state."""
        return 0 if self.preempted else self._max_slots - len(self.roster)

    def has_room(self, item: Item) -> bool:
        """Say whether an item can enter now."""
        batch = item.call.call.priority is Priority.BATCH
        slots = self._max_slots - (self._max_slots // _KEPT_FREE if batch else 0)
        return len(self.roster) < slots and (self._entry_bytes(item) <= self.ledger.free_bytes)

    def enter(self, item: Item, now_s: float) -> None:
        """Let an item run that there is room for."""
        self._reserve(item, item.first_left + self._state.granule)
        item.stage = Stage.RUNNING
        if not item.first_left:
            item.steady_s = min(item.steady_s, now_s)
        self.roster.add(item)

    def leave(self, item: Item) -> None:
        """Take out a running or preempted item that is over."""
        if item.stage is Stage.RUNNING:
            self.roster.remove(item)
            self.ledger.release(item)
        elif item in self.preempted:
            self.preempted.remove(item)

    def grow(self) -> list[Item]:
        """Reserve the next step of every running item; return those that lost their state."""
        victims: list[Item] = []
        for item in self.roster:
            need = min(item.held + self._stride, item.extent)
            if need <= item.granted or item.first_left:
                continue
            while item.stage is Stage.RUNNING and not self._reserve(item, need):
                victim = self.roster.victim()
                if victim is None:
                    break
                self._preempt(victim)
                victims.append(victim)
        return victims

    def lost_state(self, item: Item, units: int) -> None:
        """Queue a preempted item: `units` come again, before what was left of its first phase."""
        item.first_left = min(item.first_left + units, item.extent)
        item.held = 0
        self.preempted.append(item)
        self.preempted.sort(key=lambda each: (-each.call.call.priority, each.order))

    def resume(self, now_s: float) -> None:
        """Let preempted items enter while all that run could then still grow once.

        Without that headroom an item would be computed again only to be preempted in the
        next step.
        """
        while self.preempted and self.has_room(self.preempted[0]):
            item = self.preempted[0]
            headroom = sum(self._next_granule_bytes(other) for other in self.roster)
            if self._entry_bytes(item) + headroom > self.ledger.free_bytes:
                return
            del self.preempted[0]
            self.enter(item, now_s)

    def _preempt(self, item: Item) -> None:
        self.roster.remove(item)
        self.ledger.release(item)
        item.stage = Stage.PREEMPTED
        item.call.preemptions += 1
        self.preemptions += 1

    def _reserve(self, item: Item, units: int) -> bool:
        """Reserve state for `units`, but never for more than the item's extent."""
        if not self.ledger.reserve(item, self._bytes(item, units)):
            return False
        granule = self._state.granule
        item.granted = -(-min(units, item.extent) // granule) * granule
        return True

    def _entry_bytes(self, item: Item) -> int:
        return self._bytes(item, item.first_left + self._state.granule)

    def _bytes(self, item: Item, units: int) -> int:
        return self._state.request_bytes(item.plan.shape, min(units, item.extent))

    def _next_granule_bytes(self, item: Item) -> int:
        grown = self._bytes(item, item.granted + self._state.granule)
        return max(grown - self.ledger.held_by(item), 0)
