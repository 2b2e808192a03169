"""A figure that is measured again and again, and that outliers do not move."""

from __future__ import annotations

from collections import deque

_NEWEST = 0.5
"""What a new sample counts; the one before counts half of that, and so on."""


class Estimate:
    """An exponentially weighted mean of medians of three.

    One sample out of three may be anything (a cold start, a pause of the machine) and
    leaves no trace; a change that lasts is followed within a few samples. One sample says
    nothing yet; of the first two the lower one counts, as disturbances only ever add time.
    """

    __slots__ = ("_last", "value")

    def __init__(self) -> None:
        """Start with nothing measured."""
        self._last: deque[float] = deque(maxlen=3)
        self.value: float | None = None

    def observe(self, sample: float) -> None:
        """Take in a sample."""
        self._last.append(sample)
        if len(self._last) < 2:
            return
        middle = sorted(self._last)[(len(self._last) - 1) // 2]
        if self.value is None or len(self._last) < 3:
            self.value = middle
        else:
            self.value += _NEWEST * (middle - self.value)
