"""Start-time fair queueing: whose turn it is, by weighed work received."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_IDLE_KEPT = 64


class VirtualTime(Generic[Key]):
    """Turns among backlogged keys, in proportion to their weights.

    The key with the smallest start tag is next; serving `work` moves its tag on by
    work / weight. A key that comes back after a pause starts at the virtual time, so that
    nobody saves up turns. Over any time in which two keys stay backlogged, what they get
    differs from the ratio of their weights by at most one piece of work each.

    P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queuing", SIGCOMM 1996.
    """

    __slots__ = ("_backlogged", "_now", "_start", "_weight_of")

    def __init__(self, weight_of: Callable[[Key], float]) -> None:
        """Start at virtual time zero.

        Args:
            weight_of: The positive weight of a key.
        """
        self._weight_of = weight_of
        self._now = 0.0
        self._start: dict[Key, float] = {}
        self._backlogged: dict[Key, None] = {}

    def wake(self, key: Key) -> None:
        """Let a key take part; no change when it does already."""
        if key not in self._backlogged:
            self._backlogged[key] = None
            self._start[key] = max(self._now, self._start.get(key, 0.0))

    def sleep(self, key: Key) -> None:
        """Let a key rest: it has nothing to be served."""
        del self._backlogged[key]
        if not self._backlogged:
            self._now = max(self._start.values())
            self._start.clear()
        elif len(self._start) > _IDLE_KEPT + 2 * len(self._backlogged):
            self._forget()

    def next(self, *, but: Key | None = None) -> Key | None:
        """Return the key whose turn it is, of all but one; None when these rest."""
        keys = (key for key in self._backlogged if key != but)
        return min(keys, key=self._start.__getitem__, default=None)

    def charge(self, key: Key, work: float) -> None:
        """Account for `work` given to the key whose turn it was."""
        self._now = max(self._now, self._start[key])
        self.charge_early(key, work)

    def charge_early(self, key: Key, work: float) -> None:
        """Account for `work` given to a key before its turn: time does not go on."""
        self._start[key] += work / self._weight_of(key)

    def refund(self, key: Key, work: float) -> None:
        """Give back what a key was charged for and did not get, down to the virtual time."""
        if key in self._start:
            given_back = self._start[key] - work / self._weight_of(key)
            self._start[key] = max(self._now, given_back)

    def ahead(self, key: Key, own: float, others: Mapping[Key, float]) -> float:
        """Estimate the work that is served before what `key` adds to `own` work of its own.

        Others are served until their tags pass the one that the new work would have.

        Args:
            key: Who adds work.
            own: What it has waiting already.
            others: What everybody else has waiting, or will have in time.
        """
        tag = self._tag(key) + own / self._weight_of(key)
        return own + sum(
            min(work, max(tag - self._tag(other), 0.0) * self._weight_of(other))
            for other, work in others.items()
            if other != key
        )

    def _tag(self, key: Key) -> float:
        return max(self._now, self._start.get(key, 0.0))

    def _forget(self) -> None:
        """Drop resting keys that would start at the virtual time anyway."""
        self._start = {
            key: start
            for key, start in self._start.items()
            if key in self._backlogged or start > self._now
        }
