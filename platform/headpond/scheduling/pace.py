"""The pace of first phases: how much of them a step may carry beside other items.

Learnt from steps as they are measured, in two figures: what a step takes that carries no
first phase, by the number of its items (`quiet_s`), and what each unit of a first phase
adds to a step.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from headpond.admission.drain import DrainRate
from headpond.scheduling.estimate import Estimate

STRETCH_USED, GAP_USED = 0.65, 0.8
"""The parts of what is allowed that are aimed at: steps vary."""

LEAST_UNITS = 8
"""First phases get so much of a step in any case: they always go on."""

QUIET_EVERY = 32
"""After so many steps with held-back first phases one goes without, to measure it anew."""

_LEAST_ADDED = 0.1
_RATE_MEMORY_S = 10.0


@dataclass(frozen=True, slots=True)
class Room:
    """How many units of first phases a step may carry.

    Attributes:
        narrow: For the sake of items that were past theirs before.
        wide: Where nobody has such a claim: within the bound on gaps only.
    """

    narrow: int
    wide: int


class Pace:
    """What steps take, and so what fits into one."""

    def __init__(self, *, step_budget: int, stretch: float, gap_s: float | None) -> None:
        """Start with nothing measured.

        Args:
            step_budget: Units that a step may work off at most.
            stretch: How much longer than without first phases a step may take.
            gap_s: The bound on the time between two outputs, if there is one.
        """
        self._step_budget = step_budget
        self._extra = STRETCH_USED * (stretch - 1.0)
        self._gap_s = None if gap_s is None else GAP_USED * gap_s
        self._quiet: dict[int, Estimate] = {}
        self._measured: list[int] = []
        self._beside, self._alone = Estimate(), Estimate()
        self._since_quiet = 0
        self._rate = DrainRate(_RATE_MEMORY_S)

    def observe(self, steady: int, units: int, seconds: float, *, held_back: bool = False) -> None:
        """Take in a step.

        Args:
            steady: Its items past their first phase.
            units: What it worked off of first phases.
            seconds: What it took.
            held_back: Whether first phases were left that did not fit into it.
        """
        if units:
            self._rate.record(units, seconds, full=held_back)
            if units < LEAST_UNITS:
                return  # what so few add is lost in the noise
            added = max(seconds - (self.quiet_s(max(steady, 1)) or 0.0), _LEAST_ADDED * seconds)
            (self._beside if steady else self._alone).observe(added / units)
        elif steady:
            quiet = self._quiet.setdefault(steady, Estimate())
            known = quiet.value is not None
            quiet.observe(seconds)
            if not known and quiet.value is not None:
                insort(self._measured, steady)
            self._since_quiet = 0

    def quiet_s(self, steady: int) -> float | None:
        """Return what a step of so many items takes without first phases; None if unknown.

        Between the numbers that were measured it is interpolated; outside of them it is
        rather too little.
        """
        at = bisect_left(self._measured, steady)
        above = self._measured[at] if at < len(self._measured) else None
        below = self._measured[at - 1] if at else None
        if above is None:
            return None if below is None else self._quiet[below].value
        above_s = self._quiet[above].value or 0.0
        if below is None or above == steady:
            return above_s * steady / above
        below_s = self._quiet[below].value or 0.0
        return below_s + (above_s - below_s) * (steady - below) / (above - below)

    def must_be_quiet(self, steady: int) -> bool:
        """Say whether the next step has to go without first phases, to be measured.

        To be asked once for each step in which they would be held back.
        """
        self._since_quiet += 1
        return self.quiet_s(steady) is None or self._since_quiet > QUIET_EVERY

    def room(self, here: int, elsewhere: Iterable[int], sharing: int) -> Room:
        """Return what a step of one group may carry of first phases.

        Args:
            here: Items of the group past their first phase.
            elsewhere: The same for each other group; groups take turns.
            sharing: Groups with first phases.
        """
        most = self._step_budget - here
        others = [count for count in elsewhere if count]
        if not (here or others):
            return Room(most, most)
        added_s = self._beside.value or self._alone.value
        round_s = sum(self.quiet_s(count) or 0.0 for count in (here, *others) if count)
        own_s = 0.0 if here else self.quiet_s(1) or 0.0
        narrow = self._units(self._extra * round_s / sharing - own_s, added_s, most)
        if self._gap_s is None or added_s is None:
            return Room(narrow, most)
        wide = self._units((self._gap_s - round_s) / sharing - own_s, added_s, most)
        return Room(narrow, max(narrow, wide))

    def units_in(self, seconds: float, most: int) -> int:
        """Return how many units of first phases take so long, at least a few, or `most`."""
        return self._units(seconds, self._beside.value or self._alone.value, most)

    def first_phases_s(self, units: int) -> float | None:
        """Return how long so many units of first phases take, at the rate of full steps."""
        return self._rate.wait_s(units)

    def _units(self, seconds: float, added_s: float | None, most: int) -> int:
        fitting = int(seconds / added_s) if added_s else 0
        return min(max(fitting, LEAST_UNITS), most)
