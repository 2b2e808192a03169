"""The turnstile: while calls are refused for their wait, it lets through as many as are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headpond.admission.backlog import Class
from headpond.admission.drain import retry_after_s
from headpond.admission.inflow import Inflow
from headpond.call import Call, Claim
from headpond.errors import Overloaded

RATE_MEMORY_S = 2.0

OPEN_AGAIN_S = 1.0
"""It stands open when nothing was refused for so long."""

MORE = 1.1
"""It lets through so many times what is done: so that more is done when more can be."""

BURST_S = 0.1
"""Calls may come by so much before they are due, when none came before."""

LEAST_PER_S = 1.0


@dataclass(frozen=True, slots=True)
class Kind:
    """Calls that are treated alike.

    Attributes:
        line: In which they wait.
        size: The power of two that their items come up to: larger ones are refused earlier.
    """

    line: Class
    size: int

    @classmethod
    def of(cls, call: Call) -> Kind:
        """Return the kind of a call."""
        return cls(call.claim.line, len(call.items).bit_length())


@dataclass(slots=True)
class _Closed:
    """Since when calls of a kind are refused, up to which deadline, and when the next is due."""

    refused_s: float
    deadline_s: float
    due_s: float


class Turnstile:
    """Paces calls of a kind at the rate at which such calls are done.

    To refuse a call that was sent on, read and planned costs a good part of a small call. What
    is refused for its own size can't be told from what is known of lines, by routers least of all.
    So refusals are learnt from: each closes the turnstile to calls like it, of no longer deadline,
    for a while. Calls that come through are spaced as by the generic cell rate algorithm (ITU-T
    I.371).
    """

    def __init__(self) -> None:
        """Start open."""
        self._done = Inflow[Kind](RATE_MEMORY_S)
        self._closed: dict[Kind, _Closed] = {}

    def done(self, call: Call, now_s: float) -> None:
        """Note that a call was taken, or answered."""
        self._done.add(Kind.of(call), 1.0, now_s)

    def refused(self, call: Call, now_s: float) -> None:
        """Note that a call was refused for its wait, and not by a turnstile."""
        kind, deadline_s = Kind.of(call), call.deadline_s
        closed = self._closed.get(kind)
        if closed is None or now_s - closed.refused_s > OPEN_AGAIN_S:
            self._closed[kind] = _Closed(now_s, deadline_s, now_s)
        else:
            closed.refused_s = now_s
            closed.deadline_s = max(closed.deadline_s, deadline_s)

    def enter(self, call: Call, now_s: float) -> None:
        """Let a call through.

        Raises:
            Overloaded: It comes too early.
        """
        kind = Kind.of(call)
        early_s = self._early_s(kind, call.deadline_s, now_s)
        if early_s > 0.0:
            text = "more calls like it come than are done"
            raise Overloaded(text, retry_after_s=retry_after_s(early_s))
        closed = self._closed.get(kind)
        if closed is not None:
            rate = MORE * max(self._rates(now_s).get(kind, 0.0), LEAST_PER_S)
            closed.due_s = max(closed.due_s, now_s) + 1.0 / rate

    def _early_s(self, kind: Kind, deadline_s: float, now_s: float) -> float:
        closed = self._closed.get(kind)
        if closed is None or deadline_s > closed.deadline_s:
            return 0.0
        if now_s - closed.refused_s > OPEN_AGAIN_S:
            del self._closed[kind]
            return 0.0
        return closed.due_s - BURST_S - now_s

    def early_in_line_s(self, claim: Claim, now_s: float) -> float:
        """Return by how much a call of unknown size comes too early, were it of the best kind.

        Whether there are kinds that nothing was heard of lately doesn't count.
        """
        kinds = self._rates(now_s).keys() | self._closed
        heard = [kind for kind in kinds if kind.line == claim.line]
        return min((self._early_s(kind, claim.deadline_s, now_s) for kind in heard), default=0.0)

    def done_per_s(self, line: Class, now_s: float) -> float:
        """Return how many calls of a line are done each second."""
        return sum(rate for kind, rate in self._rates(now_s).items() if kind.line == line)

    def _rates(self, now_s: float) -> Mapping[Kind, float]:
        return self._done.within(1.0, now_s)
