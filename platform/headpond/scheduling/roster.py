"""The running items, by what may share a step."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence

from headpond.scheduling.sequence import Item


class Roster:
    """Running items in groups of equal `Plan.key`; the groups take turns."""

    __slots__ = ("_count", "_groups")

    def __init__(self) -> None:
        """Start empty."""
        self._groups: dict[tuple[Hashable, ...], list[Item]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of running items."""
        return self._count

    def __iter__(self) -> Iterator[Item]:
        """Iterate over a copy, so that items may be removed meanwhile."""
        return iter([item for group in self._groups.values() for item in group])

    @property
    def groups(self) -> Collection[Sequence[Item]]:
        """The groups, the one whose turn comes next first."""
        return self._groups.values()

    def add(self, item: Item) -> None:
        """Let an item take part in steps."""
        self._groups.setdefault(item.plan.key, []).append(item)
        self._count += 1

    def remove(self, item: Item) -> None:
        """Take an item out.

        Raises:
            ValueError: It is not in.
        """
        group = self._groups.get(item.plan.key, [])
        group.remove(item)
        self._count -= 1
        if not group:
            del self._groups[item.plan.key]

    def next_group(self) -> list[Item]:
        """Return those of the group whose turn it is that can go on, and put it last.

        Empty when nothing runs, or all wait for input.
        """
        for key, group in self._groups.items():
            ready = [item for item in group if not item.idle]
            if not ready:
                continue
            if len(self._groups) > 1:
                del self._groups[key]
                self._groups[key] = group
            return ready
        return []

    def victim(self) -> Item | None:
        """Return who loses its state first: the lowest priority, then the youngest.

        None when at most one item runs: the last one is never preempted.
        """
        if self._count < 2:
            return None
        return min(self, key=lambda item: (item.call.call.priority, -item.order))
