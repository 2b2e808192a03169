"""The backlog of a replica as others may know it: how long whose work would wait there."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType

from headpond.call import Claim, Priority

Class = tuple[Priority, str]
"""A priority and a tenant: whose calls wait in one line."""

TOLD_MOST = 64
"""Lines that a replica tells of, the longest first; whoever is not told of may come."""


SURE_PART = 0.6
"""A call that has to wait is taken when it would end in time even if its wait were so much longer.

Under a load beyond capacity the queue is as long as may be, and all that is taken waits for as long
as that: the rest of the time is for what no estimate knows of, on the way here and back too.
"""


def most_wait_s(deadline_s: float, takes_s: float) -> float:
    """Return the longest wait, by estimate, after which a call surely ends in time.

    Args:
        deadline_s: Seconds it has, for all.
        takes_s: What it takes, once its turn has come.
    """
    return max(SURE_PART * (deadline_s - takes_s), 0.0)


@dataclass(frozen=True, slots=True)
class Wait:
    """How long one more call of a line would wait.

    Attributes:
        wait_s: Seconds until its work would begin, however small it is.
        calls: Calls that wait in the line.
    """

    wait_s: float
    calls: int

    def after(self, before: Wait) -> Wait:
        """Return how long a call waits here that waits in another line before.

        Both lines move on at the same time, and what is before it there comes to be before it
        here: so it waits for the slower of both.

        Args:
            before: Its line there; of calls like those that wait here.
        """
        if not before.calls:
            return self
        joined_s = self.wait_s * (1.0 + before.calls / max(self.calls, 1))
        return Wait(max(before.wait_s, joined_s), self.calls + before.calls)


NO_WAIT = Wait(0.0, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """What waits at one replica.

    Attributes:
        waits: By line; lines in which nothing waits are missing.
        takes_s: What a call takes, once its turn has come.
        longest_s: The longest wait that is accepted, but of batch work; None for any.
    """

    waits: Mapping[Class, Wait] = field(default_factory=lambda: MappingProxyType({}))
    takes_s: float = 0.0
    longest_s: float | None = None

    def most_s(self, claim: Claim) -> float:
        """Return the longest wait after which a call would still be taken."""
        most_s = most_wait_s(claim.deadline_s, min(self.takes_s, claim.deadline_s / 2))
        if self.longest_s is None or claim.priority is Priority.BATCH:
            return most_s
        return min(most_s, self.longest_s)


def told(
    lines: Iterable[tuple[Priority, str, int]], wait_s: Callable[[Priority, str], float]
) -> Mapping[Class, Wait]:
    """Return the waits of the longest lines.

    Args:
        lines: Class, tenant, and how many calls wait.
        wait_s: Of one more call.
    """
    longest = heapq.nlargest(TOLD_MOST, lines, key=itemgetter(2))
    return {
        (priority, tenant): Wait(wait_s(priority, tenant), calls)
        for priority, tenant, calls in longest
    }


def joined(before: Mapping[Class, Wait], then: Mapping[Class, Wait]) -> Mapping[Class, Wait]:
    """Return the waits of calls that wait in two places, one after the other."""
    lines = before.keys() | then.keys()
    return {line: then.get(line, NO_WAIT).after(before.get(line, NO_WAIT)) for line in lines}
