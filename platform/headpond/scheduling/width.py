"""The width of a step: how many items it may have, where memory was not enough for more."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TypeVar

Member = TypeVar("Member")

_TRIAL = 64
"""After so many steps as wide as they may be, twice the width is tried again."""


class Width:
    """Halved when a step lacks memory, so that the oldest go on and the newest wait."""

    __slots__ = ("_most", "_steps")

    def __init__(self) -> None:
        """Start without a bound."""
        self._most = inf
        self._steps = 0

    def lacked(self, items: int) -> None:
        """Note that memory was not enough for a step of so many items."""
        self._most = max(items // 2, 1)
        self._steps = 0

    def held(self, items: int) -> None:
        """Note that it was enough."""
        if items < self._most:
            return
        self._steps += 1
        if self._steps >= _TRIAL:
            self._most, self._steps = 2 * self._most, 0

    def narrowed(self, group: Sequence[Member]) -> Sequence[Member]:
        """Return those of a group, the oldest first, that may step together."""
        return group if len(group) <= self._most else group[: int(self._most)]
