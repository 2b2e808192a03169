"""What one tenant has waiting in one class, and in which order it is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heappop
from typing import Generic, TypeVar

from headpond.call import Priority

Content = TypeVar("Content")


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
class Line(Generic[Content]):
    """The entries of one tenant in one class.

    Each flow gets the same share: an entry is due when the line's virtual time has come to
    the work of its flow that goes before it. A flow of one entry is due as it comes, so
    that these are served in order, and a long one does not hold them up.
    """

    entries: list[Entry[Content]] = field(default_factory=list)
    flows: Counter[Hashable] = field(default_factory=Counter)
    weights: dict[Hashable, float] = field(default_factory=dict)
    wholes: dict[Hashable, float] = field(default_factory=dict)
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
        if not weight:
            return first
        return max(first, sum(min(each, weight) for each in self.weights.values()))

    def beside(self, weight: float) -> float:
        """Return what flows would get beside a new one of this weight, had none begun.

        When one ends, another one like it has come, as a rule: so of those that have begun
        not only the rest counts.
        """
        return sum(min(each, weight) for each in self.wholes.values())
