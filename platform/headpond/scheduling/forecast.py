"""The forecast: when work on a call will probably begin, and so whether to take it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice

from headpond.admission.backlog import most_wait_s
from headpond.admission.drain import DrainRate, retry_after_s
from headpond.admission.inflow import Inflow
from headpond.admission.queue import FairQueue
from headpond.call import Claim, Priority
from headpond.errors import DeadlineExceeded, Overloaded
from headpond.scheduling.pace import Pace
from headpond.scheduling.residency import Residency
from headpond.scheduling.sequence import Item, LiveCall

_ROUNDS = 4
"""The longer the wait, the more others add, and the longer the wait: so often this is done."""

_SURELY = 2.0
"""What is refused as too long would take so many times its deadline: rates depend on the mix."""


class Forecast:
    """Expects a call to wait for a slot, or for the first phases before its own.

    - With all slots taken, the next one is free when the item that lacks least is done;
      until it is a call's turn, what waits before it has to drain, and what those add
      meanwhile who have a claim to go first by their shares.
    - With slots free, first phases that are shorter than its own go first, and of longer
      ones as much as its own.

    Items seldom come to the most that they were admitted with. How much of it they come to
    on the whole is measured. What was not measured yet counts as no wait.

    Attributes:
        drain: Weighed work that ends per busy second, as admitted, while no slot is free.
        blocked: Whether something waits that found no room; set by the scheduler.
    """

    def __init__(
        self,
        drain: DrainRate,
        queue: FairQueue[Item],
        residency: Residency,
        pace: Pace,
        *,
        exact: bool = False,
    ) -> None:
        """Start with nothing measured, and look at the scheduler's own parts.

        Args:
            drain: Weighed work that ends per busy second, as admitted.
            queue: What waits.
            residency: What runs.
            pace: Of first phases.
            exact: Whether items come to just what they were admitted with.
        """
        self._exact = exact
        self.drain = drain
        self.blocked = False
        self._classes = Inflow[Priority]()
        self._tenants = {priority: Inflow[str]() for priority in Priority}
        self._queue = queue
        self._residency = residency
        self._pace = pace

    def admitted(self, call: LiveCall, items: Sequence[Item], now_s: float) -> None:
        """Note what a call adds to the queue."""
        tenant, priority = call.call.tenant, call.call.priority
        weight = sum(item.weight for item in items)
        self._classes.add(priority, weight, now_s)
        self._tenants[priority].add(tenant, weight, now_s)

    def check(
        self, call: LiveCall, items: Sequence[Item], now_s: float, longest_s: float | None
    ) -> None:
        """Refuse a call that would wait too long.

        Args:
            call: What is offered.
            items: Those of its items that need the engine.
            now_s: When.
            longest_s: The most it may wait, unless it is batch work.

        Raises:
            DeadlineExceeded: It would surely take longer than that, even alone.
            Overloaded: Its work would begin later than `longest_s`, or end after its deadline.
        """
        if self._exact:
            self._refuse_long(call, items, now_s)
        wait_s = self.wait_s(call, items, now_s)
        takes_s = self._takes_s(max(item.weight for item in items))
        refuse_late(call.claim(now_s), wait_s, takes_s, longest_s)

    def wait_s(self, call: LiveCall, items: Sequence[Item], now_s: float) -> float:
        """Return the seconds until work on the first of `items` begins; 0 where unknown."""
        waiting = len(self._queue)
        free = 0 if self.blocked else self._residency.free_slots
        least = min(items, key=lambda item: item.first_left)
        first_s = self._first_phases_s(least, min(waiting, free))
        if waiting < free:
            return first_s
        waiting_part = (waiting - free) / waiting if waiting else 0.0
        tenant, priority = call.call.tenant, call.call.priority
        turn_s = self._turn_s(tenant, priority, waiting_part, now_s)
        slot_s = self._next_slot_s(least, free) + turn_s
        return max(slot_s, first_s)

    def turn_s(self, priority: Priority, tenant: str, now_s: float) -> float:
        """Return the seconds until it is the turn of what a tenant adds, however little."""
        waiting = len(self._queue)
        if waiting < (0 if self.blocked else self._residency.free_slots):
            return 0.0
        return self._turn_s(tenant, priority, 1.0, now_s)

    @property
    def takes_s(self) -> float:
        """What an item takes from its turn on, of those that run."""
        running = [each.weight for each in self._residency.roster if each.inlet is None]
        return self._takes_s(sum(running) / len(running)) if running else 0.0

    def _takes_s(self, weight: float) -> float:
        """Return what an item takes while all that run share the engine with it."""
        return len(self._residency.roster) * (self.drain.wait_s(weight) or 0.0)

    def _refuse_long(self, call: LiveCall, items: Sequence[Item], now_s: float) -> None:
        """Refuse a call whose longest item takes too long at the rate of all that runs."""
        takes_s = self.drain.wait_s(max(item.weight for item in items)) or 0.0
        left_s = call.deadline_at_s - now_s
        if takes_s > _SURELY * left_s:
            raise DeadlineExceeded(
                f"it takes at least about {takes_s:.1f} s, and the deadline is {left_s:.1f} s"
            )

    def _turn_s(self, tenant: str, priority: Priority, part: float, now_s: float) -> float:
        """Return how long `part` of the queue takes to drain before it is a tenant's turn."""
        turn_s = 0.0
        for _ in range(_ROUNDS):
            ahead = self._queue.ahead(
                tenant,
                priority,
                self._tenants[priority].within(turn_s, now_s),
                self._classes.within(turn_s, now_s),
            )
            turn_s = self.drain.wait_s(ahead * part) or 0.0
        return turn_s

    def _first_phases_s(self, item: Item, starting: int) -> float:
        """Return what first phases take that are dealt before the item's own."""
        if not item.first_left:
            return 0.0
        own = item.first_need
        before = chain(self._residency.roster, islice(self._queue, starting))
        units = sum(min(each.first_need, own) for each in before if each.first_left)
        return (self._pace.first_phases_s(units) or 0.0) if units else 0.0

    def _next_slot_s(self, item: Item, free: int) -> float:
        """Return when the first of the running items, and those that start now, is done."""
        part = self.drain.part
        running = [
            (each.weight, each.meter.counted)
            for each in self._residency.roster
            if each.inlet is None  # when a live one ends, nobody knows
        ]
        if free:
            running.append((item.weight, 0.0))
        least = min((max(part * most - done, 0.0) for most, done in running), default=0.0)
        before = least / part * (len(running) + max(free - 1, 0))
        return self.drain.wait_s(before) or 0.0


def refuse_late(claim: Claim, wait_s: float, takes_s: float, longest_s: float | None) -> None:
    """Refuse a call whose work would begin too late, or for its wait end too late.

    Args:
        claim: Whose it is, and the seconds that are left.
        wait_s: Seconds until its work will probably begin.
        takes_s: What it probably takes then. Where that alone is more than is left, or there
            is no wait, it is tried: much ends early.
        longest_s: The most it may wait, unless it is batch work.

    Raises:
        Overloaded: Its work would begin later than `longest_s`, or end after its deadline.
    """
    late_s = wait_s - most_wait_s(claim.deadline_s, takes_s if takes_s < claim.deadline_s else 0.0)
    if late_s > 0.0:
        raise Overloaded(
            f"the wait is about {wait_s:.1f} s, and the deadline {claim.deadline_s:.1f} s",
            retry_after_s=retry_after_s(late_s),
        )
    if longest_s is None or claim.priority is Priority.BATCH:
        return
    if wait_s > longest_s:
        raise Overloaded(
            f"the wait is about {wait_s:.1f} s; at most {longest_s:.1f} s are accepted",
            retry_after_s=retry_after_s(wait_s - longest_s),
        )


def least(bounds: Iterable[float | None]) -> float | None:
    """Return the tightest of some bounds; None when none is given."""
    return min((bound for bound in bounds if bound is not None), default=None)
