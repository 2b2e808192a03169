"""How the units of one step are dealt out to a group of compatible items."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from headpond.scheduling.sequence import Item

Grant = tuple[Item, int]
"""An item and how far it may go in this step."""

_by_order = attrgetter("order")
_by_last_step = attrgetter("last_step")


def compose(group: Sequence[Item], budget: int) -> list[Grant]:
    """Deal at most `budget` units to a group.

    Items past their first phase get one unit each. What is left goes to first phases in
    chunks, to the one that started first before the next, so that a long first phase never
    holds up the steps of others. When the budget is too small even for that, everybody
    gets one unit in turns, the longest passed over first.
    """
    first = [item for item in group if item.first_left]
    steady = len(group) - len(first)
    if steady + bool(first) > budget:
        return [(item, 1) for item in sorted(group, key=_by_last_step)[:budget]]
    if not first:
        return [(item, 1) for item in group]
    grants = [(item, 1) for item in group if not item.first_left]
    left = budget - steady
    for item in sorted(first, key=_by_order):
        if left <= 0:
            break
        chunk = min(item.first_left, left)
        grants.append((item, chunk))
        left -= chunk
    return grants
