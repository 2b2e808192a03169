"""Replicas by work: what a replica has to do, instead of how many calls it has.

Serve counts calls, and a call may be ten tokens or ten thousand. Each replica tells Serve how
full it is and how many seconds of work wait before it; a deployment whose config names
`headpond.autoscaling:ByWork` as its policy is scaled by these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.scheduling.snapshot import LoopSnapshot

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

OCCUPANCY, BACKLOG_S = "occupancy", "backlog_s"


def load_of(snapshot: LoopSnapshot, max_slots: int | None) -> dict[str, float]:
    """Return what a replica tells Serve of its load.

    Args:
        snapshot: Its loop's.
        max_slots: The most that share a step; None where batches are formed.

    Returns:
        `occupancy`, the share in use of what bounds it (slots or state; where batches are
        formed, whether one runs), and `backlog_s`, how long the work that waits takes.
    """
    if max_slots is None:
        occupancy = 0.0 if snapshot.busy_s is None else 1.0
    else:
        occupancy = max(
            snapshot.running_slots / max_slots,
            snapshot.state_held_bytes / max(1, snapshot.state_budget_bytes),
        )
    # Until a rate is measured nothing can be said of the time.
    backlog_s = snapshot.queued_work / snapshot.drain_rate if snapshot.drain_rate else 0.0
    return {OCCUPANCY: min(1.0, occupancy), BACKLOG_S: backlog_s}


class ByWork:
    """A policy of Serve's autoscaler: as many replicas as are `target_load` full.

    Serve itself keeps the bounds, factors and delays of the deployment's config.
    """

    def __init__(self, *, target_load: float = 0.8, patience_s: float = 1.0) -> None:
        """Aim at a load.

        Args:
            target_load: How full replicas are when there are enough, above 0.
            patience_s: So many seconds of waiting work count as a whole replica's load.

        Raises:
            ValueError: One of them is not above 0.
        """
        if target_load <= 0 or patience_s <= 0:
            raise ValueError("target_load and patience_s must be above 0")
        self._target_load = target_load
        self._patience_s = patience_s

    def __call__(self, context: AutoscalingContext) -> tuple[float, dict[str, object]]:
        """Return the replicas wanted, in parts of one, and no state."""
        metrics = context.aggregated_metrics or {}
        occupancy, backlog_s = metrics.get(OCCUPANCY, {}), metrics.get(BACKLOG_S, {})
        if not occupancy:
            # None runs, or none has told yet: Serve starts the first by its own queue.
            return context.target_num_replicas, {}
        load = sum(occupancy.values()) + sum(backlog_s.values()) / self._patience_s
        return load / self._target_load, {}
