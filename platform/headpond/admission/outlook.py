"""The outlook of a router: what it expects the replicas of one application to refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headpond.admission.backlog import Backlog, Class
from headpond.admission.drain import retry_after_s
from headpond.admission.inflow import Inflow
from headpond.call import Call, Claim
from headpond.errors import Overloaded

SLACK, SLACK_S = 0.1, 0.05
"""What is expected is refused only when it is so much beyond the bound: the replica knows best."""

RATE_MEMORY_S = 2.0

UNANSWERED_LEAST = 256
"""So many calls of a line may be without an answer in any case; more must be done in time."""


@dataclass(slots=True)
class _Line:
    """What is known of a line: its wait at a time, and the calls that were sent on since."""

    wait_s: float
    each_s: float
    since_s: float
    sent: int = 0

    def wait_at(self, now_s: float, replicas: int) -> float:
        """Return the wait by now: a line gets shorter by itself, and longer with every call."""
        return self.wait_s + self.sent / replicas * self.each_s - (now_s - self.since_s)


class Outlook:
    """Refuses what all replicas would refuse, before its body is sent anywhere.

    It knows of a line by what the replicas said when they were asked last, and by what they
    refused since: such a call tells how long its line is. So of calls that are too many about
    as many are let through as are done. Whose line is not known is let through, but for a
    flood: more calls without an answer than were answered lately in the time they have.
    """

    def __init__(self) -> None:
        """Start with nothing known."""
        self._backlogs: Sequence[Backlog] = (Backlog(),)
        self._lines: dict[Class, _Line] = {}
        self._done = Inflow[Class](RATE_MEMORY_S)
        self._unanswered: Counter[Class] = Counter()

    def tell(self, backlogs: Sequence[Backlog], now_s: float) -> None:
        """Take in what every replica said; nothing changes where none answered.

        Args:
            backlogs: One for each replica.
            now_s: When.
        """
        if not backlogs:
            return
        self._backlogs = backlogs
        everywhere = set(backlogs[0].waits).intersection(*(each.waits for each in backlogs))
        self._lines = {}
        for line in everywhere:
            wait = min((each.waits[line] for each in backlogs), key=lambda each: each.wait_s)
            self._lines[line] = _Line(wait.wait_s, wait.wait_s / wait.calls, now_s)

    def send(self, claim: Claim, now_s: float) -> None:
        """Count a call that is sent on.

        Raises:
            Overloaded: It would begin, or end, too late everywhere.
        """
        refuse_excess(self.excess_s(claim, now_s))
        key = (claim.priority, claim.tenant)
        self._unanswered[key] += 1
        if (line := self._lines.get(key)) is not None:
            line.sent += 1

    def excess_s(self, claim: Claim, now_s: float) -> float:
        """Return by how much a call would be too late everywhere; 0 or less where it is not."""
        key = (claim.priority, claim.tenant)
        most_s = (1.0 + SLACK) * max(backlog.most_s(claim) for backlog in self._backlogs)
        flood_s = self._flood_s(key, now_s) - claim.deadline_s
        line = self._lines.get(key)
        if line is None:
            return flood_s
        return max(line.wait_at(now_s, len(self._backlogs)) - most_s - SLACK_S, flood_s)

    def answered(self, claim: Claim) -> None:
        """Note that a call which was sent on is taken, refused, lost or given up."""
        key = (claim.priority, claim.tenant)
        self._unanswered[key] -= 1
        if not self._unanswered[key]:
            del self._unanswered[key]

    def _flood_s(self, key: Class, now_s: float) -> float:
        """Return how long a flood of calls takes, by what was done lately; 0 where none is."""
        unanswered = self._unanswered[key]
        if unanswered < UNANSWERED_LEAST:
            return 0.0
        return unanswered / max(self._done.within(1.0, now_s).get(key, 0.0), 1.0)

    def done(self, claim: Claim, now_s: float) -> None:
        """Note that a replica has taken a call, or answered it."""
        self._done.add((claim.priority, claim.tenant), 1.0, now_s)

    def refused(self, call: Call, now_s: float) -> None:
        """Note that a replica has refused a call for its wait.

        One of many items says nothing of the wait of others.
        """
        if len(call.items) > 1:
            return
        line = (call.priority, call.tenant)
        rate = self._done.within(1.0, now_s).get(line, 0.0) / len(self._backlogs)
        most_s = max(backlog.most_s(call.claim) for backlog in self._backlogs)
        known = self._lines.get(line)
        if known is None or known.wait_at(now_s, len(self._backlogs)) < most_s:
            each_s = 1.0 / max(rate, 1.0) if known is None else known.each_s
            self._lines[line] = _Line(most_s, each_s, now_s)


def refuse_excess(excess_s: float) -> None:
    """Refuse a call that would be too late everywhere.

    Raises:
        Overloaded: By so many seconds.
    """
    if excess_s > 0.0:
        raise Overloaded(
            f"the wait is about {excess_s:.1f} s longer than it may be",
            retry_after_s=retry_after_s(excess_s),
        )
