"""The outlook of a router: what it expects the replicas of one application to refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headpond.admission.backlog import Backlog, Class
from headpond.admission.too_many import TooMany
from headpond.admission.turnstile import Turnstile
from headpond.call import Call, Claim
from headpond.errors import Overloaded

SLACK, SLACK_S = 0.1, 0.05
"""What is expected is refused only when it is so much beyond the bound: the replica knows best."""

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

    It knows of a line by what the replicas said when they were asked last. While they refuse
    calls all the same, of calls like these about as many are let through as are done. All else
    is let through, but for a flood: more calls without an answer than were answered lately in
    the time they have.
    """

    def __init__(self) -> None:
        """Start with nothing known."""
        self._backlogs: Sequence[Backlog] = (Backlog(),)
        self._lines: dict[Class, _Line] = {}
        self._turnstile = Turnstile()
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

    def send(self, call: Call, now_s: float) -> None:
        """Count a call that is sent on.

        Raises:
            Overloaded: It would begin, or end, too late everywhere.
        """
        claim, line = call.claim, call.claim.line
        if (excess_s := self._excess_s(claim, now_s)) > 0.0:
            raise _too_long(excess_s)
        self._turnstile.enter(call, now_s)
        self._unanswered[line] += 1
        if (known := self._lines.get(line)) is not None:
            known.sent += 1

    def refusal(self, claim: Claim, now_s: float) -> Overloaded | None:
        """Return with what a call is refused whatever it asks for; None where it may not be."""
        if (excess_s := self._excess_s(claim, now_s)) > 0.0:
            return _too_long(excess_s)
        early_s = self._turnstile.early_in_line_s(claim, now_s)
        return TooMany.for_a_while(early_s) if early_s > 0.0 else None

    def answered(self, call: Call) -> None:
        """Note that a call which was sent on is taken, refused, lost or given up."""
        line = call.claim.line
        self._unanswered[line] -= 1
        if not self._unanswered[line]:
            del self._unanswered[line]

    def done(self, call: Call, now_s: float) -> None:
        """Note that a replica has taken a call, or answered it."""
        self._turnstile.done(call, now_s)

    def refused(self, call: Call, now_s: float) -> None:
        """Note that a replica has refused a call for its wait."""
        self._turnstile.refused(call, now_s)

    def _excess_s(self, claim: Claim, now_s: float) -> float:
        """Return by how much a call would be too late everywhere; 0 or less where it is not."""
        line = claim.line
        flood_s = self._flood_s(line, now_s) - claim.deadline_s
        known = self._lines.get(line)
        if known is None:
            return flood_s
        most_s = (1.0 + SLACK) * max(backlog.most_s(claim) for backlog in self._backlogs)
        return max(known.wait_at(now_s, len(self._backlogs)) - most_s - SLACK_S, flood_s)

    def _flood_s(self, line: Class, now_s: float) -> float:
        """Return how long a flood of calls takes, by what was done lately; 0 where none is."""
        unanswered = self._unanswered[line]
        if unanswered < UNANSWERED_LEAST:
            return 0.0
        return unanswered / max(self._turnstile.done_per_s(line, now_s), 1.0)


def _too_long(excess_s: float) -> TooMany:
    """Return the error of a call, and of all of its line, whose wait is so much too long."""
    return TooMany.for_a_while(
        excess_s, f"the wait is about {excess_s:.1f} s longer than it may be"
    )
