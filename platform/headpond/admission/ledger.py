"""The ledger of retained state: who holds how many bytes of one budget."""

from __future__ import annotations

from collections.abc import Hashable


class Ledger:
    """Bytes by holder within a budget; back at zero when everybody has released."""

    __slots__ = ("_budget_bytes", "_held", "_held_bytes")

    def __init__(self, budget_bytes: int) -> None:
        """Start empty.

        Args:
            budget_bytes: The most that may be held at any time.
        """
        self._budget_bytes = budget_bytes
        self._held: dict[Hashable, int] = {}
        self._held_bytes = 0

    @property
    def budget_bytes(self) -> int:
        """The most that may be held at any time."""
        return self._budget_bytes

    @property
    def held_bytes(self) -> int:
        """What all holders hold together."""
        return self._held_bytes

    @property
    def free_bytes(self) -> int:
        """What is left of the budget."""
        return self._budget_bytes - self._held_bytes

    def __len__(self) -> int:
        """Return the number of holders."""
        return len(self._held)

    def held_by(self, holder: Hashable) -> int:
        """Return the bytes that `holder` holds; 0 when it holds nothing."""
        return self._held.get(holder, 0)

    def reserve(self, holder: Hashable, total_bytes: int) -> bool:
        """Let `holder` hold `total_bytes` from now on; False when the budget forbids it.

        Raises:
            ValueError: The total is negative.
        """
        if total_bytes < 0:
            raise ValueError(f"cannot hold {total_bytes} bytes")
        more = total_bytes - self._held.get(holder, 0)
        if more > self.free_bytes:
            return False
        self._held[holder] = total_bytes
        self._held_bytes += more
        return True

    def release(self, holder: Hashable) -> int:
        """Take back everything `holder` holds and return how much it was.

        Raises:
            ValueError: It holds nothing: it never reserved, or has released before.
        """
        if holder not in self._held:
            raise ValueError("released twice, or never reserved")
        released = self._held.pop(holder)
        self._held_bytes -= released
        return released
