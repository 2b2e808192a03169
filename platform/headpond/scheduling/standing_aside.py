"""Batch work stands aside while anybody waits for an answer: it shares few of their steps."""

from __future__ import annotations

from collections.abc import Iterable

from headpond.call import Priority
from headpond.scheduling.sequence import Item

SHARED_EVERY = 20
"""One step in so many carries batch work too, so that it never starves."""


class StandingAside:
    """Says who of a group is stepped, and counts for how long batch work was not."""

    def __init__(self) -> None:
        self._passed_over = 0

    def kept(self, group: list[Item], running: Iterable[Item]) -> list[Item]:
        """Return a group without its batch work, while others run that can go on.

        Args:
            group: Those whose turn it is.
            running: All that run.
        """
        if not any(_is_waited_for(item) and not item.idle for item in running):
            self._passed_over = 0
            return group
        kept = [item for item in group if _is_waited_for(item)]
        if len(kept) == len(group):
            return group
        self._passed_over += 1
        if self._passed_over < SHARED_EVERY:
            return kept
        self._passed_over = 0
        return group


def _is_waited_for(item: Item) -> bool:
    return item.call.call.priority > Priority.BATCH
