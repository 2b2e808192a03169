"""Fair steps: who has many items of a step does not make it long for who has few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from headpond.scheduling.pace import Pace
from headpond.scheduling.sequence import Item

STRETCH = 1.8
"""Steps of tenants with few items take on the average so many times what they take alone.

Less than 2, since they also wait for a slot and share their first phase's steps.
"""

OWED_MOST = 8.0
"""So many of their steps alone they may be owed: after a pause, too, the crowd goes on soon."""


class FairSteps:
    """Says who of a group is stepped, where one tenant has more than its share of the slots.

    Fair turns decide who gets a slot, but the step is as long as all slots make it. So tenants
    with more running items than the mean, each by its weight, stand aside in as many steps as
    it takes to keep those of the others within `STRETCH`. Nothing changes where a step of all
    is not so much longer, or all have equally many.
    """

    def __init__(self, pace: Pace, tenant_weights: Mapping[str, float]) -> None:
        """Start with nothing owed.

        Args:
            pace: Knows what a step of few takes.
            tenant_weights: Weights of tenants that don't weigh 1.
        """
        self._pace = pace
        self._tenant_weights = tenant_weights
        self._owed_s = 0.0
        self._few = 0

    def kept(self, group: list[Item], running: Iterable[Item]) -> list[Item]:
        """Return a group without those who stand aside in this step.

        Args:
            group: Those whose turn it is.
            running: All that run.
        """
        crowd = self._crowd(running)
        few = [item for item in group if item.call.call.tenant not in crowd]
        if not crowd or not few or len(few) == len(group):
            self._few, self._owed_s = 0, 0.0
            return group
        self._few = len(few)
        return few if self._owed_s > 0.0 else group

    def observe(self, items: int, took_s: float) -> None:
        """Take in a step.

        Args:
            items: Its items.
            took_s: The seconds that it took.
        """
        if not self._few:
            return
        alone_s = self._pace.quiet_s(self._few) or took_s * self._few / items
        owed_s = max(self._owed_s, -alone_s) + took_s - STRETCH * alone_s
        self._owed_s = min(owed_s, OWED_MOST * alone_s)

    def _crowd(self, running: Iterable[Item]) -> set[str]:
        """Return the tenants that have more running than the mean."""
        counts = Counter(item.call.call.tenant for item in running if not item.idle)
        if len(counts) < 2:
            return set()
        parts = {
            tenant: count / self._tenant_weights.get(tenant, 1.0)
            for tenant, count in counts.items()
        }
        mean = sum(parts.values()) / len(parts)
        return {tenant for tenant, part in parts.items() if part > mean}
