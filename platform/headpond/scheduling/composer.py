"""How the units of one step are dealt out to a group of compatible items."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter

from headpond.scheduling.pace import Pace
from headpond.scheduling.roster import Roster
from headpond.scheduling.sequence import Item

SHORT_S = 0.02
"""What first phases may add to a step that is to be short."""

Grant = tuple[Item, int]
"""An item and how much of it this step computes."""

_by_order = attrgetter("order")
_by_last_step = attrgetter("last_step")


class Composer:
    """Deals at most `step_budget` units a step.

    Items past their first phase get one unit each; first phases share what is left:

    - The one that started first gets at least half, the others go by what they lack, the
      least first: a short one does not wait for a long one, nor a long one for ever.
    - First phases that are outnumbered by items which were past theirs before they came
      get no more than keeps the step within `stretch` times what it takes without them.
      All others may fill the step, within the record's bound on gaps: those who came
      together share the cost.
    - A step that is to be short, for the sake of those who may come during it, carries no
      more of first phases than takes `SHORT_S`.

    When the budget is too small for one unit each, everybody gets one in turns, the longest
    passed over first.
    """

    def __init__(self, pace: Pace, step_budget: int) -> None:
        """Keep what every step needs.

        Args:
            pace: Knows what fits into a step.
            step_budget: Units that a step may work off.
        """
        self._pace = pace
        self._step_budget = step_budget

    def compose(self, group: Sequence[Item], roster: Roster, *, short: bool = False) -> list[Grant]:
        """Deal out a step of `group`, one of the roster's groups or a part of one."""
        first = [item for item in group if item.first_left]
        steady = len(group) - len(first)
        if steady + bool(first) > self._step_budget:
            return [(item, 1) for item in sorted(group, key=_by_last_step)[: self._step_budget]]
        if not first:
            return [(item, 1) for item in group]
        grants = [(item, 1) for item in group if not item.first_left] if steady else []
        limits = self._limits(first, steady, roster)
        if limits is not None and short:
            most = self._pace.units_in(SHORT_S, self._step_budget - steady)
            limits = {item: min(limit, most) for item, limit in limits.items()}
        if limits is not None:
            grants += _dealt(first, limits)
        return grants

    def _limits(
        self, first: Sequence[Item], steady: int, roster: Roster
    ) -> Mapping[Item, int] | None:
        """Return the most units of first phases in the step, by the item they are given to.

        None when the step has to go without.
        """
        counts = [sum(not item.first_left for item in each) for each in roster.groups]
        sharing = [len(each) - count for each, count in zip(roster.groups, counts, strict=True)]
        before = sorted(item.steady_s for item in roster if not item.first_left)
        newcomers = sum(sharing)
        held_back = {
            item for item in first if 0 < newcomers <= bisect_left(before, item.call.arrived_s)
        }
        if held_back and steady and self._pace.must_be_quiet(steady):
            return None
        if steady in counts:
            counts.remove(steady)
        room = self._pace.room(steady, counts, max(sum(map(bool, sharing)), 1))
        return {item: room.narrow if item in held_back else room.wide for item in first}


def _dealt(first: Sequence[Item], limits: Mapping[Item, int]) -> list[Grant]:
    shares: dict[Item, int] = {}

    def give(item: Item, most: int) -> None:
        share = min(item.first_need - shares.get(item, 0), most - sum(shares.values()))
        if share > 0:
            shares[item] = shares.get(item, 0) + share

    oldest = min(first, key=_by_order)
    give(oldest, -(-limits[oldest] // 2) if len(first) > 1 else limits[oldest])
    for item in sorted(first, key=lambda each: (each.first_need - shares.get(each, 0), each.order)):
        give(item, limits[item])
    return list(shares.items())
