"""Batch work stands aside while anybody waits for an answer: it takes little of their time."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from headpond.call import Priority
from headpond.scheduling.sequence import Item, LiveCall

SHARED_EVERY = 20
"""Batch work gets about one part in so many of the time, so that it never starves."""

RECENT_S = 3.0
"""So long after somebody asked, more is expected: batch work keeps short what it begins."""


class StandingAside:
    """Knows when somebody asked who waits, and how long batch work stood aside since."""

    def __init__(self) -> None:
        """Start with nobody who asked."""
        self._asked_s = -inf
        self._shared_s = 0.0
        self._since_s: float | None = None

    def asked(self, call: LiveCall, now_s: float) -> None:
        """Note who asks; batch work is not waited for."""
        if is_waited_for(call):
            self._asked_s = now_s

    def expects(self, now_s: float) -> bool:
        """Say whether somebody asked so lately that the next one may come any time."""
        return now_s - self._asked_s < RECENT_S

    def stand(self, now_s: float) -> bool:
        """Stand aside now, as others are served; False when it did so for long enough."""
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s < (SHARED_EVERY - 1) * self._shared_s

    def step_back(self) -> None:
        """Note that there is nobody to stand aside for."""
        self._since_s = None

    def shared(self, took_s: float, now_s: float) -> None:
        """Take in how long something with batch work in it took; from now on others have theirs."""
        self._shared_s = took_s
        if self._since_s is not None:
            self._since_s = now_s

    def kept(self, group: list[Item], running: Iterable[Item], now_s: float) -> list[Item]:
        """Return a group without its batch work, while others run that can go on.

        Args:
            group: Those whose turn it is.
            running: All that run.
            now_s: When.
        """
        if not any(is_waited_for(item.call) and not item.idle for item in running):
            self.step_back()
            return group
        kept = [item for item in group if is_waited_for(item.call)]
        if len(kept) == len(group) or not self.stand(now_s):
            return group
        return kept


def is_waited_for(call: LiveCall) -> bool:
    """Say whether somebody waits for an answer, rather than for a batch."""
    return call.call.priority > Priority.BATCH
