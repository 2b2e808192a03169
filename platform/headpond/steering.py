"""How Serve chooses a replica for a call: of two at random, none that has fallen silent."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ray.serve.request_router import FIFOMixin, RequestRouter

from headpond.placement import Placement

if TYPE_CHECKING:
    from ray.serve._private.common import ReplicaID
    from ray.serve._private.replica_result import ReplicaResult
    from ray.serve.request_router import PendingRequest, RunningReplica

_CHOICES = 2


class Steering(FIFOMixin, RequestRouter):
    """Serve's power of two choices, among replicas that answer, and tells who took a call.

    Serve itself goes on choosing a replica that stands still: it remembers its short queue.
    """

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return two replicas; Serve takes the one with the shorter queue."""
        placement = _placement(pending_request)
        avoid = frozenset[str]() if placement is None else placement.avoid
        alive = [each for each in candidate_replicas if each.replica_id.unique_id not in avoid]
        candidates = alive or candidate_replicas
        return [random.sample(candidates, min(_CHOICES, len(candidates)))]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult
    ) -> None:
        """Note which replica has taken a call in."""
        if (placement := _placement(pending_request)) is not None:
            placement.replica = replica_id.unique_id


def _placement(request: PendingRequest | None) -> Placement | None:
    """Return the placement among a call's arguments; what is asked of all has none."""
    given = () if request is None else request.args
    return next((each for each in given if isinstance(each, Placement)), None)
