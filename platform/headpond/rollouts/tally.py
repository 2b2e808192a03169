"""What was seen of one target's calls: how they ended, and how long they took."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_RATIO = 1.1
_SMALLEST_S = 1e-4
_SLOTS = 10


def _bucket(seconds: float) -> int:
    return math.ceil(math.log(max(seconds, _SMALLEST_S) / _SMALLEST_S) / math.log(_RATIO))


def _upper_s(bucket: int) -> float:
    return _SMALLEST_S * _RATIO**bucket


@dataclass(slots=True)
class Tally:
    """Counts that add up over routers and over time.

    Attributes:
        ended: Calls that came to an end, without those that their callers gave up.
        failed: Those of them that ended by an error.
        took: For each measure of time the calls by bucket; a bucket is 10 % wide.
    """

    ended: int = 0
    failed: int = 0
    took: dict[str, Counter[int]] = field(default_factory=dict)

    def fail(self) -> None:
        """Count a call that ended by an error."""
        self.ended += 1
        self.failed += 1

    def finish(self, took_s: Mapping[str, float]) -> None:
        """Count a call that ended well, with its seconds by measure."""
        self.ended += 1
        for measure, seconds in took_s.items():
            self.took.setdefault(measure, Counter())[_bucket(seconds)] += 1

    def add(self, other: Tally) -> None:
        """Add what another has counted."""
        self.ended += other.ended
        self.failed += other.failed
        for measure, counts in other.took.items():
            self.took.setdefault(measure, Counter()).update(counts)

    def measured(self, measure: str) -> int:
        """Return how many calls have such a measure."""
        return self.took.get(measure, Counter()).total()

    def quantile_s(self, measure: str, share: float) -> float | None:
        """Return the seconds within which that share of calls was done; None without any."""
        counts = self.took.get(measure)
        if not counts:
            return None
        left = share * counts.total()
        for bucket in sorted(counts):
            left -= counts[bucket]
            if left <= 0:
                return _upper_s(bucket)
        return _upper_s(max(counts))

    def longer_than(self, measure: str, seconds: float) -> int:
        """Return how many calls surely took longer."""
        counts = self.took.get(measure, Counter())
        return sum(count for bucket, count in counts.items() if _upper_s(bucket - 1) >= seconds)


class Window:
    """A tally that forgets what is older than a while, a tenth of that at a time."""

    def __init__(self, length_s: float, clock: Callable[[], float]) -> None:
        """Start empty.

        Args:
            length_s: How long something is remembered.
            clock: Monotonic seconds.
        """
        self._slot_s = length_s / _SLOTS
        self._clock = clock
        self._slots: deque[tuple[int, Tally]] = deque()

    @property
    def now(self) -> Tally:
        """The tally to count in at this moment."""
        at = int(self._clock() / self._slot_s)
        self._forget(at)
        if not self._slots or self._slots[-1][0] != at:
            self._slots.append((at, Tally()))
        return self._slots[-1][1]

    def total(self) -> Tally:
        """Return the sum of what is remembered."""
        self._forget(int(self._clock() / self._slot_s))
        total = Tally()
        for _, tally in self._slots:
            total.add(tally)
        return total

    def _forget(self, at: int) -> None:
        while self._slots and self._slots[0][0] <= at - _SLOTS:
            self._slots.popleft()
