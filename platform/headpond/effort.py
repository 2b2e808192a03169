"""Effort: what a phase of one item takes of a device at least, whatever engine computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headpond.bundle.manifest import Manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """The least that a device phase of one item takes.

    Attributes:
        steps: Forwards that follow each other.
        shared_bytes: Memory read by each of them, whoever shares it: the weights.
        own_bytes: Memory read for the item alone, over all of them: its state.
        operations: Additions and multiplications for the item, over all of them.
        dtype: What the products are computed in; the bundle's own when absent.
    """

    steps: int
    shared_bytes: float
    own_bytes: float = 0.0
    operations: float = 0.0
    dtype: str | None = None

    def floor_s(self, items: int, *, bytes_per_s: float, operations_per_s: float) -> float:
        """Return the least seconds in which so many alike items pass the phase together."""
        read_s = (self.steps * self.shared_bytes + items * self.own_bytes) / bytes_per_s
        return max(read_s, items * self.operations / operations_per_s)


Efforts = Callable[[Manifest, Mapping[str, int]], Mapping[str, Effort]]
"""Says, of a bundle and an item's dimensions, what each device phase takes at least."""
