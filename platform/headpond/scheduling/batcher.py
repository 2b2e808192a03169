"""The scheduler of formed batches: a state machine without engine, thread or clock.

A lane asks `form` for a batch, runs it, and tells `advance` how it went; several lanes may
have a batch each.

- A batch is whatever waits when a lane is free, up to the budget: nobody waits for a timer.
- The item whose turn it is leads; others follow by their turns while they may share its
  batch, then whoever may, so that buckets fill up. An item that is larger than the budget
  goes alone.
- Calls of thousands of items share with small ones: see `FairQueue`. So a small call waits
  for the batches under way, and for one batch at most; where an engine has lanes for small
  calls alone, not even for these. A large one waits for all that others get before its last
  item, and is refused when that takes longer than it may. A crowd of small calls of one
  tenant is a large one to others.
- Batch work stands aside while a call that is waited for runs, or waits for another lane.
  When such a call came lately, batches of batch work alone are short and leave a lane free;
  otherwise they get all there is.
- A batch that raises is run again by halves, until one item fails alone.
- A call whose time is up ends, unless all that is left of it is being computed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from headpond.admission.backlog import Backlog, Wait, told
from headpond.admission.drain import DrainRate
from headpond.admission.ledger import Ledger
from headpond.admission.line import Waiting
from headpond.admission.queue import FairQueue
from headpond.call import Claim, Priority
from headpond.engine import Outcome
from headpond.errors import DeadlineExceeded, DeclarationError, HeadpondError, InvalidRequest
from headpond.record import Formed, PhaseKind, WorkloadRecord
from headpond.scheduling.book import CallBook
from headpond.scheduling.estimate import Estimate
from headpond.scheduling.forecast import least, refuse_late
from headpond.scheduling.sequence import Delivery, Item, LiveCall, Stage
from headpond.scheduling.standing_aside import StandingAside, is_waited_for
from headpond.state import StateModel
from headpond.units import Work

MEMORY_S = 3.0
"""How fast batches are is forgotten in so many busy seconds: they are short, and many.

A flood takes the cores that engines compute on, so that they are slower in it from one moment to
the next, and all that was admitted at the rate of before ends too late.
"""

SHORTER = 4
"""A short batch holds so much less."""


class Bucket(NamedTuple):
    """What may be taken along with each other.

    Attributes:
        small: Of calls that are waited for, take one batch at most, and that no crowd of their
            tenant's is before, rather than of large ones.
        key: Equal for all that may share a batch.
    """

    small: bool
    key: Hashable


@dataclass(slots=True, eq=False)
class Batch:
    """Items that are computed together, with equal keys.

    Attributes:
        items: At least one.
        units: What they fill along the batching axis.
        small: Whether all of them are of small calls.
        full: Whether something was left waiting when it was formed.
        aside: Whether all of them are batch work.
        began_s: When it was formed.
    """

    items: list[Item] = field(default_factory=list)
    units: int = 0
    small: bool = True
    full: bool = False
    aside: bool = True
    began_s: float = 0.0


class Batcher:
    """Decides who waits, and who is computed together with whom."""

    def __init__(
        self,
        record: WorkloadRecord,
        state: StateModel,
        *,
        budget: int,
        state_bytes: int,
        max_items: int | None = None,
        lanes: int = 1,
        max_wait_s: float | None = None,
        tenant_weights: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Start idle.

        Args:
            record: The workload; must batch in formed batches.
            state: The record's state, bound to the bundle.
            budget: Units along the axis that the engine wants in a batch.
            state_bytes: The budget of what all batches under way hold.
            max_items: The most items in a batch; None for what the budget allows.
            lanes: That may have a batch of batch work at once.
            max_wait_s: Calls that would wait longer are refused; None as the record says.
            tenant_weights: Weights of tenants that don't weigh 1.

        Raises:
            DeclarationError: The record's batching is not formed.
        """
        if not isinstance(record.batching, Formed):
            raise DeclarationError(f"workload {record.name!r} is not batched in formed batches")
        self._axis = record.batching.axis
        self._budget = min(budget, record.batching.budget)
        self._max_items = max_items
        self._lanes = lanes
        self._standing_aside = StandingAside()
        self._expecting = False
        self._units = record.units_by_name
        self._device_phase = next(p.name for p in record.phases if p.kind is PhaseKind.DEVICE)
        self._state = state
        self.ledger = Ledger(state_bytes)
        self.drain = DrainRate(MEMORY_S)
        limit = record.overload.queue_limit.weigh(self._units)
        self.queue: FairQueue[Item] = FairQueue(limit, self.drain, tenant_weights)
        self._longest_wait_s = least((record.overload.wait_s, max_wait_s))
        self._book = CallBook()
        self._again: deque[Batch] = deque()
        self._running: dict[Batch, None] = {}
        self._full_s = Estimate()
        self._accounted_s = 0.0
        self.batches = 0
        self.failed_in_a_row = 0
        self.last_batch_s: float | None = None

    @property
    def calls(self) -> Mapping[LiveCall, None]:
        """The calls that are not over."""
        return self._book.calls

    @property
    def finished(self) -> Mapping[str, int]:
        """Calls that are over, by outcome."""
        return self._book.finished

    @property
    def running_items(self) -> int:
        """Items that are being computed."""
        return sum(len(batch.items) for batch in self._running)

    def waits(self, small: bool | None) -> bool:
        """Say whether something waits that such a lane may take; see `form`."""
        if small is None:
            return bool(self._again or len(self.queue))
        again = any(batch.small is small for batch in self._again)
        return again or self._bucket(small) is not None

    def offer(self, call: LiveCall, now_s: float) -> Delivery | None:
        """Let all items of a call wait, or refuse it without a trace.

        Returns:
            The whole call, when planning has answered all of it already.

        Raises:
            DeadlineExceeded: Its time is up already.
            InvalidRequest: An item needs more state than there is.
            Overloaded: The queue is full, or the wait longer than the deadline or the bound.
        """
        return self._book.admit(call, now_s, self._admit)

    def check_turn(self, claim: Claim, before: Wait, now_s: float) -> None:
        """Refuse a call that would wait too long however little it asks for.

        Args:
            claim: What is known of it.
            before: Its line before it is offered.
            now_s: When.

        Raises:
            Overloaded: It would.
        """
        del now_s
        calls = self.queue.calls(claim.tenant, claim.priority)
        wait = Wait(self._turn_s(claim.priority, claim.tenant), calls).after(before)
        refuse_late(claim, wait.wait_s, self._takes_s(0.0), self._longest_wait_s)

    def backlog(self, now_s: float) -> Backlog:
        """Return what waits, as others may know it."""
        del now_s
        waits = told(self.queue.lines(), self._turn_s)
        return Backlog(waits=waits, takes_s=self._takes_s(0.0), longest_s=self._longest_wait_s)

    def cancel(self, call: LiveCall, error: HeadpondError) -> None:
        """End a call at the next chance: nobody reads it any more, for the reason `error`."""
        self._book.cancel(call, error)

    def abort(self, error: HeadpondError) -> None:
        """End every call with `error`; what is being computed is thrown away."""
        for call in list(self.calls):
            self._end(call, error)

    def form(self, now_s: float, small: bool | None = None) -> Batch | None:
        """End what is dead, then take out the next batch.

        Args:
            now_s: When.
            small: For a lane of small calls only, or of large ones only; None for any. Turns
                are kept among large calls; small ones may come before theirs.

        Returns:
            What to run; None when nothing waits for this lane.
        """
        for call, error in self._book.ending(now_s):
            late = isinstance(error, DeadlineExceeded)
            if not (late and all(item.stage is not Stage.WAITING for item in call.items)):
                self._end(call, error)
        self._expecting = self._standing_aside.expects(now_s)
        batch = self._next_again(small) or self._next(small, self._holds_back(small, now_s))
        if batch is None:
            return None
        if not self._running:
            self._accounted_s = now_s
        batch.began_s = now_s
        batch.full = len(self.queue) > 0
        self._running[batch] = None
        for item in batch.items:
            if not item.call.scheduled:
                item.call.scheduled = True
                item.call.timeline.enter(self._device_phase, now_s)
        return batch

    def advance(
        self, batch: Batch, results: Sequence[Outcome[object]] | HeadpondError, now_s: float
    ) -> None:
        """Take in how a batch went.

        Args:
            batch: What was run.
            results: What each item came to in the same order, or the error the batch raised.
            now_s: When it ended.
        """
        self.batches += 1
        self.last_batch_s = now_s
        full = any(each.full for each in self._running)
        if batch.full:
            self._full_s.observe(now_s - batch.began_s)
        del self._running[batch]
        if batch.aside:
            self._standing_aside.shared(now_s - batch.began_s, now_s)
        for item in batch.items:
            self.ledger.release(item)
        if isinstance(results, HeadpondError):
            self.failed_in_a_row += 1
            self._fail_or_split(batch, results)
            done = 0.0
        else:
            self.failed_in_a_row = 0
            for item, outcome in zip(batch.items, results, strict=True):
                self._settle(item, outcome, now_s)
            done = sum(item.weight for item in batch.items)
        self.drain.record(done, now_s - self._accounted_s, full=full)
        self._accounted_s = now_s

    def collect(self, now_s: float) -> list[Delivery]:
        """Hand out what there is for each call: for streams at once, else at the end."""
        return self._book.collect(now_s)

    def _admit(self, call: LiveCall, items: Sequence[Item], now_s: float) -> None:
        tenant, priority = call.call.tenant, call.call.priority
        for item in items:
            needed = self._bytes(item)
            if needed > self.ledger.budget_bytes:
                raise InvalidRequest(
                    f"{item.plan.shape[self._axis]} {self._axis} take {needed} bytes; this "
                    f"replica has {self.ledger.budget_bytes}"
                )
        weight = sum(item.weight for item in items)
        wait_s = self.drain.wait_s(self.queue.ahead(tenant, priority, weight=weight)) or 0.0
        takes_s = self._takes_s(self.drain.wait_s(weight) or 0.0)
        refuse_late(call.claim(now_s), wait_s, takes_s, self._longest_wait_s)
        # Calls share, and others like those that wait come meanwhile.
        beside_s = self.drain.wait_s(self.queue.beside(tenant, priority, weight)) or 0.0
        refuse_late(call.claim(now_s), beside_s, takes_s, None)
        lone = is_waited_for(call) and not self._crowds(tenant, priority)
        call.small = lone and self._is_small(items)
        self._standing_aside.asked(call, now_s)
        for item in items:
            item.waiting = Waiting(
                tenant=tenant,
                priority=priority,
                weight=item.weight,
                content=item,
                flow=call,
                bucket=Bucket(call.small, item.plan.key),
            )
        self.queue.append([item.waiting for item in items if item.waiting is not None])

    def _turn_s(self, priority: Priority, tenant: str) -> float:
        """Return the seconds until it is the turn of what a tenant adds, however little."""
        return self.drain.wait_s(self.queue.ahead(tenant, priority)) or 0.0

    def _takes_s(self, work_s: float) -> float:
        """Return what a call takes once its turn has come: the batch under way, and its own.

        Args:
            work_s: Its own work, at the rate of all lanes.
        """
        full_s = self._full_s.value or 0.0
        return full_s + max(full_s, work_s)

    def _holds_back(self, small: bool | None, now_s: float) -> bool:
        """Say whether batch work may not begin a batch on such a lane now."""
        awaited, aside = self.queue.awaited, sum(batch.aside for batch in self._running)
        if small:
            return False
        if self._expecting and 0 < self._lanes - 1 <= aside:
            return True
        if not awaited and aside == len(self._running):
            self._standing_aside.step_back()
            return False
        return self._standing_aside.stand(now_s)

    def _next(self, small: bool | None, held_back: bool) -> Batch | None:
        batch = Batch()
        if small:
            if (bucket := self._bucket(small=True)) is not None:
                self._fill(batch, bucket)
            return batch if batch.items else None

        def fits(item: Item) -> bool:
            if small is False and item.call.small:
                return False
            return self._reserve(item, batch)

        leader = self.queue.take(fits, awaited=held_back)
        if leader is None:
            return None
        self._enter(leader, batch)
        key = leader.plan.key
        if is_waited_for(leader.call):
            self._follow(leader, batch, fits, held_back)
        # Of batch work the oldest follow, whatever their turns: whole calls end, one by one.
        if small is None:
            self._fill(batch, Bucket(True, key))
        self._fill(batch, Bucket(False, key))
        return batch

    def _follow(
        self, leader: Item, batch: Batch, fits: Callable[[Item], bool], held_back: bool
    ) -> None:
        """Add those whose turns come next, while they may share the leader's batch."""

        def follows(item: Item) -> bool:
            return item.plan.key == leader.plan.key and fits(item)

        while (item := self.queue.take(follows, awaited=held_back)) is not None:
            self._enter(item, batch)

    def _bucket(self, small: bool) -> Bucket | None:
        """Return the bucket that small calls, or large ones, have waited in longest."""
        for bucket in self.queue.buckets:
            if isinstance(bucket, Bucket) and bucket.small is small:
                return bucket
        return None

    def _fill(self, batch: Batch, bucket: Bucket) -> None:
        """Add what waits in a bucket, in turn or not, as far as it fits."""
        while (
            item := self.queue.take_alike(bucket, lambda each: self._reserve(each, batch))
        ) is not None:
            self._enter(item, batch)

    def _next_again(self, small: bool | None) -> Batch | None:
        batch = next((each for each in self._again if small in (None, each.small)), None)
        if batch is None or sum(map(self._bytes, batch.items)) > self.ledger.free_bytes:
            return None
        for item in batch.items:
            self.ledger.reserve(item, self._bytes(item))
        self._again.remove(batch)
        return batch

    def _reserve(self, item: Item, batch: Batch) -> bool:
        """Say whether an item fits into a batch, and if so reserve its state."""
        units = item.plan.shape[self._axis]
        short = self._expecting and not is_waited_for(item.call)
        budget = self._budget // SHORTER if short else self._budget
        if batch.items and batch.units + units > budget:
            return False
        if self._max_items is not None and len(batch.items) >= self._max_items:
            return False
        return self.ledger.reserve(item, self._bytes(item))

    def _enter(self, item: Item, batch: Batch) -> None:
        item.stage = Stage.RUNNING
        batch.items.append(item)
        batch.units += item.plan.shape[self._axis]
        batch.small = batch.small and item.call.small
        batch.aside = batch.aside and not is_waited_for(item.call)

    def _settle(self, item: Item, outcome: Outcome[object], now_s: float) -> None:
        """Take in one item's result; that of a call that has ended is thrown away."""
        if item.stage is Stage.RUNNING:
            if outcome.error is not None:
                self._book.fail(item, outcome.error)
                item.work = Work()
            else:
                item.work = item.work if outcome.work is None else outcome.work
                self._book.give(item, outcome.outputs, now_s)
                self._book.done(item)
            item.stage = Stage.OVER
        self._release(item)

    def _fail_or_split(self, batch: Batch, error: HeadpondError) -> None:
        living = [item for item in batch.items if item.stage is Stage.RUNNING]
        for item in batch.items:
            if item.stage is not Stage.RUNNING:
                self._release(item)
        if len(batch.items) == 1 or not living:
            for item in living:
                self._book.fail(item, error)
                item.work, item.stage = Work(), Stage.OVER
                self._release(item)
            return
        middle = -(-len(living) // 2)
        for part in (living[:middle], living[middle:]):
            if part:
                half = Batch()
                for item in part:
                    self._enter(item, half)
                self._again.append(half)

    def _end(self, call: LiveCall, error: HeadpondError) -> None:
        """End a call as a whole; what is being computed of it is thrown away later."""
        for item in self._book.end(call, error):
            waiting = item.stage is Stage.WAITING
            item.stage, item.work = Stage.OVER, Work()
            if waiting and item.waiting is not None:
                self.queue.withdraw(item.waiting)
                self._release(item)
        self._forget_ended()

    def _forget_ended(self) -> None:
        """Take ended items out of the batches that were to be run again."""
        for batch in list(self._again):
            for item in [each for each in batch.items if each.stage is Stage.OVER]:
                batch.items.remove(item)
                self._release(item)
            if not batch.items:
                self._again.remove(batch)

    def _release(self, item: Item) -> None:
        self._book.released(item)

    def _is_small(self, items: Sequence[Item]) -> bool:
        """Say whether items of one call, alike in all else, take one batch at most."""
        if len(items) == 1:
            return True
        units = sum(item.plan.shape[self._axis] for item in items)
        return units <= self._budget and len(items) <= (self._max_items or len(items))

    def _crowds(self, tenant: str, priority: Priority) -> bool:
        """Say whether small calls of a tenant wait for longer than a batch takes.

        More of them then count as large: together they are one, and the lanes for small calls
        stay free for those of others.
        """
        waits_s = self.drain.wait_s(self.queue.weight_of(tenant, priority)) or 0.0
        return waits_s > (self._full_s.value or math.inf)

    def _bytes(self, item: Item) -> int:
        shape = item.plan.shape
        return self._state.request_bytes(shape, shape[self._axis])
