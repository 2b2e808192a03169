"""The waiting queue: bounded in work, fair between tenants, and never starving a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Generic, TypeVar

from headpond.admission.drain import DrainRate
from headpond.admission.fairness import VirtualTime
from headpond.call import Priority
from headpond.errors import Overloaded

CLASS_WEIGHTS: Mapping[Priority, float] = MappingProxyType(
    {Priority.URGENT: 16.0, Priority.NORMAL: 4.0, Priority.BATCH: 1.0}
)
"""Shares of the work while all classes wait: 16 : 4 : 1. So batch work gets a 21st at worst."""

BATCH_SHARE = 0.5
"""Batch work fills no more of the queue than this: nobody who waits is refused for it."""

LEAST_CHARGE = 1.0
"""Work that weighs less is charged as this much, so that free work crowds nobody out."""

Content = TypeVar("Content")
Key = TypeVar("Key")


@dataclass(slots=True, eq=False, kw_only=True)
class Waiting(Generic[Content]):
    """One piece of work in the queue.

    Attributes:
        tenant: Who is served.
        priority: The class it waits in.
        weight: Its work as one number.
        content: What `take` hands out.
        flow: What it is a part of: a call.
        bucket: What it may be served together with, for `take_alike`; None when that is
            never asked for.
        queued: Whether it waits now; set by the queue.
    """

    tenant: str
    priority: Priority
    weight: float
    content: Content
    flow: Hashable = None
    bucket: Hashable = None
    queued: bool = False


Entry = tuple[float, int, Waiting[Content]]


@dataclass(slots=True, eq=False)
class _Line(Generic[Content]):
    """What one tenant has waiting in one class.

    Each flow gets the same share: an entry is due when the line's virtual time has come to
    the work of its flow that goes before it. A flow of one entry is due as it comes, so
    that these are served in order, and a long one does not hold them up.
    """

    entries: list[Entry[Content]] = field(default_factory=list)
    flows: Counter[Hashable] = field(default_factory=Counter)
    weights: dict[Hashable, float] = field(default_factory=dict)
    now: float = 0.0
    weight: float = 0.0
    living: int = 0

    def head(self) -> Waiting[Content]:
        """Return the entry that is due next; there must be one."""
        while not self.entries[0][2].queued:
            heappop(self.entries)
        return self.entries[0][2]

    def pass_time(self, entry: Waiting[Content]) -> None:
        """Move the virtual time on by an entry's part, shared by all flows."""
        self.now += entry.weight / max(len(self.flows), 1)

    def ahead(self, weight: float) -> float:
        """Estimate the work that is served before the last entry of a new flow of this weight.

        Every flow gets the same share, so each gets as much as the new one before that.
        """
        if not self.living:
            return 0.0
        first = self.weight * min(len(self.flows) / self.living, 1.0)
        return max(first, sum(min(each, weight) for each in self.weights.values()))


class FairQueue(Generic[Content]):
    """Waiting work of all tenants, with one owner and two operations: append and take.

    Classes share by `CLASS_WEIGHTS`, tenants within a class by their own weights (1 unless
    given), both by start-time fair queueing; one tenant's calls in one class get the same
    share each. `take` never passes over the one whose turn it is, so that a big request is
    not starved by small ones; `take_alike` does, and charges for it. `withdraw` and
    `settle` move nothing: they correct the books.
    """

    def __init__(
        self,
        limit: float,
        drain: DrainRate,
        tenant_weights: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Start empty.

        Args:
            limit: The most weighed work that waits. A queue that is empty takes any call.
            drain: The measured rate, by which a full queue says when to come back.
            tenant_weights: Positive weights of tenants that don't weigh 1.
        """
        self._limit = limit
        self._drain = drain
        self._weight = 0.0
        self._living = 0
        self._tenant_weights = tenant_weights
        self._classes = VirtualTime[Priority](CLASS_WEIGHTS.__getitem__)
        self._tenants = {each: VirtualTime[str](self._weight_of) for each in Priority}
        self._lines: dict[Priority, dict[str, _Line[Content]]] = {each: {} for each in Priority}
        self._buckets: dict[Hashable, list[Entry[Content]]] = {}
        self._in_bucket: Counter[Hashable] = Counter()
        self._number = 0

    def __len__(self) -> int:
        """Return how many entries wait."""
        return self._living

    def __iter__(self) -> Iterator[Content]:
        """Iterate over what waits, one tenant's after the other's."""
        for lines in self._lines.values():
            for line in lines.values():
                yield from (entry.content for _, _, entry in line.entries if entry.queued)

    @property
    def weight(self) -> float:
        """Weighed work that waits."""
        return self._weight

    @property
    def buckets(self) -> Mapping[Hashable, int]:
        """How many entries wait in each bucket that holds some, by when they began to."""
        return self._in_bucket

    @property
    def awaited(self) -> bool:
        """Whether anything waits that is no batch work."""
        return any(lines for each, lines in self._lines.items() if each is not Priority.BATCH)

    def append(self, entries: Sequence[Waiting[Content]]) -> None:
        """Let all entries of one call wait, or none.

        Args:
            entries: At least one, all of one tenant, class and flow.

        Raises:
            Overloaded: The bound would be passed.
        """
        first = entries[0]
        limit = self._limit * (BATCH_SHARE if first.priority is Priority.BATCH else 1.0)
        excess = self._weight + sum(entry.weight for entry in entries) - limit
        if self._living and excess > 0.0:
            raise Overloaded(
                f"{self._weight:.0f} units of work wait; at most {limit:.0f} may",
                retry_after_s=self._drain.retry_after_s(excess),
            )
        line = self._lines[first.priority].setdefault(first.tenant, _Line())
        due = line.now
        for entry in entries:
            self._number += 1
            heappush(line.entries, (due, self._number, entry))
            due += entry.weight
            if entry.bucket is not None:
                bucket = self._buckets.setdefault(entry.bucket, [])
                heappush(bucket, (-entry.priority, self._number, entry))
                self._in_bucket[entry.bucket] += 1
            entry.queued = True
            self._count(line, entry, 1)
        self._classes.wake(first.priority)
        self._tenants[first.priority].wake(first.tenant)

    def take(self, fits: Callable[[Content], bool], *, awaited: bool = False) -> Content | None:
        """Hand out the content whose turn it is.

        Args:
            fits: Whether it can be served now; when not, it stays and None is returned.
            awaited: Whether batch work is passed over; it keeps its turn.
        """
        priority = self._classes.next(but=Priority.BATCH if awaited else None)
        if priority is None:
            return None
        tenants = self._tenants[priority]
        tenant = tenants.next()
        if tenant is None:
            return None
        entry = self._lines[priority][tenant].head()
        if not fits(entry.content):
            return None
        charged = max(entry.weight, LEAST_CHARGE)
        if awaited:
            self._classes.charge_early(priority, charged)
        else:
            self._classes.charge(priority, charged)
        tenants.charge(tenant, charged)
        self._serve(entry)
        return entry.content

    def take_alike(self, bucket: Hashable, fits: Callable[[Content], bool]) -> Content | None:
        """Hand out content of a bucket before its turn, to go along with what is served now.

        Its tenant and class pay for it as if it had been their turn. Higher classes go
        first, then who came first.

        Args:
            bucket: Equal to that of what is served now.
            fits: Whether it can be served now; when not, it stays and None is returned.
        """
        entries = self._buckets.get(bucket, [])
        while entries and not entries[0][2].queued:
            heappop(entries)
        if not entries or not fits(entries[0][2].content):
            return None
        entry = entries[0][2]
        charged = max(entry.weight, LEAST_CHARGE)
        self._classes.charge_early(entry.priority, charged)
        self._tenants[entry.priority].charge_early(entry.tenant, charged)
        self._serve(entry)
        return entry.content

    def withdraw(self, entry: Waiting[Content]) -> None:
        """Mark a waiting entry as dead: it counts no more, and `take` skips it."""
        if entry.queued:
            self._leave(self._lines[entry.priority][entry.tenant], entry)

    def settle(self, entry: Waiting[Content], weight: float) -> None:
        """Charge a taken entry for what it came to instead of what it might have cost."""
        unused = max(entry.weight, LEAST_CHARGE) - max(weight, LEAST_CHARGE)
        if unused > 0.0:
            self._classes.refund(entry.priority, unused)
            self._tenants[entry.priority].refund(entry.tenant, unused)

    def ahead(
        self,
        tenant: str,
        priority: Priority,
        tenants: Mapping[str, float] = MappingProxyType({}),
        classes: Mapping[Priority, float] = MappingProxyType({}),
        *,
        weight: float = 0.0,
    ) -> float:
        """Estimate the weighed work of others that is served before a new flow's last entry.

        Args:
            tenant: Who adds one.
            priority: The class it is in.
            tenants: What others in the class will add meanwhile.
            classes: What other classes will.
            weight: Of all entries of the flow, where it is more than one.
        """
        waiting = {other: line.weight for other, line in self._lines[priority].items()}
        line = self._lines[priority].get(tenant)
        own = weight if line is None else weight + line.ahead(weight)
        in_class = self._tenants[priority].ahead(tenant, own, _sum(waiting, tenants))
        waiting_classes = {
            other: sum(line.weight for line in lines.values())
            for other, lines in self._lines.items()
            if other is not priority
        }
        return self._classes.ahead(priority, in_class, _sum(waiting_classes, classes)) - weight

    def _serve(self, entry: Waiting[Content]) -> None:
        line = self._lines[entry.priority][entry.tenant]
        line.pass_time(entry)
        self._leave(line, entry)

    def _weight_of(self, tenant: str) -> float:
        return self._tenant_weights.get(tenant, 1.0)

    def _count(self, line: _Line[Content], entry: Waiting[Content], by: int) -> None:
        line.living += by
        line.weight += by * entry.weight
        line.flows[entry.flow] += by
        line.weights[entry.flow] = line.weights.get(entry.flow, 0.0) + by * entry.weight
        if not line.flows[entry.flow]:
            del line.flows[entry.flow], line.weights[entry.flow]
        self._living += by
        # Sums of floats that come and go drift; an empty queue is the time to forget that.
        self._weight = self._weight + by * entry.weight if self._living else 0.0

    def _leave(self, line: _Line[Content], entry: Waiting[Content]) -> None:
        entry.queued = False
        self._count(line, entry, -1)
        if entry.bucket is not None:
            self._in_bucket[entry.bucket] -= 1
            if not self._in_bucket[entry.bucket]:
                del self._in_bucket[entry.bucket], self._buckets[entry.bucket]
        if line.living:
            return
        lines, tenants = self._lines[entry.priority], self._tenants[entry.priority]
        del lines[entry.tenant]
        tenants.sleep(entry.tenant)
        if not lines:
            self._classes.sleep(entry.priority)


def _sum(one: Mapping[Key, float], other: Mapping[Key, float]) -> Mapping[Key, float]:
    return {key: one.get(key, 0.0) + other.get(key, 0.0) for key in one.keys() | other.keys()}
