"""A trial: what one router sees of an alias while a canary or a copy of its calls runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headpond.bundle.alias import Alias
from headpond.call import Accepted, Answer, Call, Ended, Event, Failed, Output
from headpond.errors import HeadpondError, RequestCancelled
from headpond.rollouts.agreement import Agreement
from headpond.rollouts.drift import Drift
from headpond.rollouts.guard import Guard
from headpond.rollouts.revision import Revision
from headpond.rollouts.tally import Tally, Window
from headpond.units import Work

TTFT, TOTAL = "ttft", "total"

Copy = Callable[["Trial", Call, Sequence[Event]], None]
"""Sends a copy of a call that is over, whose events are given, to the shadow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialReport:
    """What was seen so far; crosses from router to router, and to commands.

    Attributes:
        alias: The alias.
        number: The revision that the trial belongs to.
        canary: Calls of the canary, lately.
        others: Calls of the other targets in the same time.
        agreed: What came of the copies.
    """

    alias: str
    number: int
    canary: Tally = field(default_factory=Tally)
    others: Tally = field(default_factory=Tally)
    agreed: Agreement = field(default_factory=Agreement)


def summed(alias: str, number: int, reports: Iterable[TrialReport]) -> TrialReport:
    """Return the sum of all routers' reports of one trial."""
    total = TrialReport(alias=alias, number=number)
    for report in reports:
        if (report.alias, report.number) == (alias, number):
            total.canary.add(report.canary)
            total.others.add(report.others)
            total.agreed.add(report.agreed)
    return total


class Trial:
    """Counts one alias's calls by target. One event loop owns it."""

    def __init__(self, revision: Revision, clock: Callable[[], float], copy: Copy) -> None:
        """Start with nothing seen.

        Args:
            revision: Says who is on trial.
            clock: Monotonic seconds.
            copy: Sends copies to the shadow.
        """
        self.revision = revision
        self.agreed = Agreement()
        self.drift = Drift()
        window_s = (revision.guard or Guard()).window_s
        self._canary, self._others = Window(window_s, clock), Window(window_s, clock)
        self._clock = clock
        self._copy = copy
        shadow = revision.shadow
        self._lot = None
        if shadow is not None:
            shares = {"copy": shadow.share, "no copy": 1 - shadow.share}
            self._lot = Alias(name=f"shadow of {revision.alias}", weights=shares)

    def report(self) -> TrialReport:
        """Return what was seen so far."""
        return TrialReport(
            alias=self.revision.alias,
            number=self.revision.number,
            canary=self._canary.total(),
            others=self._others.total(),
            agreed=self.agreed,
        )

    def begin(self, call: Call, app: str) -> Watching:
        """Return what watches a call that goes to a target."""
        window = self._canary if app == self.revision.canary else self._others
        shadow = self.revision.shadow
        copied = (
            self._lot is not None
            and shadow is not None
            and app != shadow.target
            and self._lot.choose(call.request_id) == "copy"
        )
        return Watching(self, call, window, self._clock, self._copy if copied else None)


class Watching:
    """Watches one call, from when it is sent on to its end."""

    def __init__(
        self,
        trial: Trial,
        call: Call,
        window: Window,
        clock: Callable[[], float],
        copy: Copy | None,
    ) -> None:
        """Begin now.

        Args:
            trial: What it is part of.
            call: What was asked.
            window: Where it is counted.
            clock: Monotonic seconds.
            copy: Sends a copy when the call ended well, where it was chosen for that.
        """
        self._trial = trial
        self._call = call
        self._window = window
        self._clock = clock
        self._copy = copy
        self._began_s = clock()
        self._first_s: float | None = None
        self._failed = False
        self._over = False
        self._events: list[Event] = []

    def answered(self, answer: Answer) -> WatchedAnswer:
        """Return the answer, whose events are seen as they pass."""
        return WatchedAnswer(answer, self)

    def saw(self, batch: Sequence[Event]) -> None:
        """Take note of events that pass."""
        if self._copy is not None:
            self._events += batch
        for event in batch:
            if isinstance(event, Output) and self._first_s is None:
                self._first_s = self._clock() - self._began_s
            elif isinstance(event, Failed):
                self._failed = True
            elif isinstance(event, Ended):
                self._end(event)

    def failed(self, error: HeadpondError) -> None:
        """Take note that the call ended by an error; one that its caller gave up is no failure."""
        if not self._over and not isinstance(error, RequestCancelled):
            self._window.now.fail()
        self._over = True
        self._copy = None

    def fed(self) -> None:
        """Take note that the call gets input: there is no copy of that."""
        self._copy = None
        self._events.clear()

    def closed(self) -> None:
        """Take note that the answer was sent."""
        if self._copy is not None and self._over and not self._failed:
            self._copy(self._trial, self._call, self._events)
        self._copy = None

    def _end(self, ended: Ended) -> None:
        self._over = True
        if self._failed:
            self._window.now.fail()
            return
        total_s = self._clock() - self._began_s
        first_s = total_s if self._first_s is None else self._first_s
        self._window.now.finish({**ended.phases_s, TTFT: first_s, TOTAL: total_s})


class WatchedAnswer:
    """An answer whose events are seen on their way to the caller."""

    def __init__(self, answer: Answer, watching: Watching) -> None:
        """Pass on `answer`, and tell `watching` of what passes."""
        self._answer = answer
        self._watching = watching

    @property
    def accepted(self) -> Accepted:
        """What was admitted."""
        return self._answer.accepted

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Iterate over the events."""
        try:
            async for batch in self._answer.batches():
                self._watching.saw(batch)
                yield batch
        except HeadpondError as error:
            self._watching.failed(error)
            raise

    async def feed(self, payload: object, units: int) -> None:
        """Hand more input to the call."""
        self._watching.fed()
        await self._answer.feed(payload, units)

    @property
    def waiting_units(self) -> int:
        """How many units of what was fed the engine has not passed yet."""
        return self._answer.waiting_units

    async def close(self) -> None:
        """Let go of the call."""
        await self._answer.close()
        self._watching.closed()

    def when_over(self, told: Callable[[Work], None]) -> None:
        """Have `told` called with what the call came to, when it is over."""
        self._answer.when_over(told)
