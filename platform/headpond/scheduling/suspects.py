"""Finding the one item that makes steps fail, by halves."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from headpond.scheduling.sequence import Item, Stage


class Suspects:
    """Groups of items of which at least one made a step fail, still to be tried alone.

    A group that fails again is split; one that succeeds is cleared. One bad item among n is
    found after at most 2 log2(n) further steps, and until then nothing else is stepped, so
    that it spoils no other step. An item that has no place in the step of its group is
    cleared too: when it is the bad one, its next step says so.
    """

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        """Start with nobody under suspicion."""
        self._groups: deque[list[Item]] = deque()

    def __len__(self) -> int:
        """Return the number of groups to be tried."""
        return len(self._groups)

    def next_group(self) -> list[Item]:
        """Take out the next group that still runs; empty when there is none."""
        while self._groups:
            group = [item for item in self._groups.popleft() if item.stage is Stage.RUNNING]
            if group:
                return group
        return []

    def split(self, group: Sequence[Item]) -> None:
        """Try the two halves of a group that failed together, next."""
        middle = len(group) // 2
        self._groups.appendleft(list(group[middle:]))
        self._groups.appendleft(list(group[:middle]))
