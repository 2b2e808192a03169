"""The inflow: how much work is admitted per second, and for whom."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import exp
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_FORGET_BELOW = 0.01
_KEPT = 64


class Inflow(Generic[Key]):
    """Exponentially decayed sums of weighed work, divided by the time they remember."""

    __slots__ = ("_keep", "_memory_s", "_sums")

    def __init__(self, memory_s: float = 5.0) -> None:
        """Start with nothing.

        Args:
            memory_s: Seconds after which what came counts 1/e.
        """
        self._memory_s = memory_s
        self._sums: dict[Key, tuple[float, float]] = {}
        self._keep = _KEPT

    def add(self, key: Key, weight: float, now_s: float) -> None:
        """Count work that was admitted."""
        self._sums[key] = (self._decayed(key, now_s) + weight, now_s)
        if len(self._sums) > self._keep:
            sums = self._sums.items()
            living = {each: kept for each, kept in sums if self._lives(each, now_s)}
            self._sums, self._keep = living, _KEPT + 2 * len(living)

    def within(self, seconds: float, now_s: float) -> Mapping[Key, float]:
        """Return how much comes in so many seconds when all goes on like this."""
        part = seconds / self._memory_s
        return {key: part * self._decayed(key, now_s) for key in self._sums}

    def _decayed(self, key: Key, now_s: float) -> float:
        total, since_s = self._sums.get(key, (0.0, now_s))
        return total * exp((since_s - now_s) / self._memory_s)

    def _lives(self, key: Key, now_s: float) -> bool:
        return self._decayed(key, now_s) > _FORGET_BELOW
