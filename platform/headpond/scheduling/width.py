"""The width of a step: how many items it may have, where memory was not enough for more."""

from __future__ import annotations

from math import inf
from typing import TypeVar

Member = TypeVar("Member")

_TRIAL = 64
"""After so many steps as wide as they may be, twice the width is tried again."""


class Width:
    """Halved when a step lacks memory, so that the oldest go on and the newest wait.

    One item may be what takes it all: suspects are tried first, and if one of them is found
    to blame, the width stays.
    """

    __slots__ = ("_lacked", "_most", "_steps")

    def __init__(self) -> None:
        """Start without a bound."""
        self._most = inf
        self._steps = 0
        self._lacked = 0

    def lacked(self, items: int) -> None:
        """Note that memory was not enough for a step of so many items, perhaps for one of them."""
        self._lacked = max(self._lacked, items)

    def blamed(self) -> None:
        """Note that one item was to blame."""
        self._lacked = 0

    def held(self, items: int) -> None:
        """Note that memory was enough, and that nobody is suspected any more."""
        if self._lacked:
            self._most, self._steps, self._lacked = max(self._lacked // 2, 1), 0, 0
        elif items >= self._most:
            self._steps += 1
            if self._steps >= _TRIAL:
                self._most, self._steps = 2 * self._most, 0

    def narrowed(self, group: list[Member]) -> list[Member]:
        """Return those of a group, the oldest first, that may step together."""
        return group if len(group) <= self._most else group[: int(self._most)]
