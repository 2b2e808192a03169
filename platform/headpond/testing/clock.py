"""A clock that stands still until it is told otherwise."""

from __future__ import annotations


class FakeClock:
    """Monotonic seconds that a test moves on; call it where a clock is wanted."""

    def __init__(self, now_s: float = 1000.0) -> None:
        """Start at `now_s`."""
        self._now_s = now_s

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move on.

        Raises:
            ValueError: The clock would go backwards.
        """
        if seconds < 0.0:
            raise ValueError(f"a clock does not go {seconds} s back")
        self._now_s += seconds
