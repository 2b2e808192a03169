"""What crosses the hop between a router and a replica, and the handle it crosses by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headpond.admission.backlog import Backlog
from headpond.call import Accepted, Call, Event, ModelCard
from headpond.errors import HeadpondError
from headpond.lane import LaneAddress


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A whole answer in one message, for callers who did not ask for a stream.

    Attributes:
        accepted: What was admitted.
        events: What it gave.
        error: How the call as a whole failed after it was admitted, if it did.
    """

    accepted: Accepted
    events: tuple[Event, ...]
    error: HeadpondError | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaStatus:
    """One replica as it sees itself.

    Attributes:
        card: The model it serves; `card.name` is the name of its application.
        reason: Why it cannot serve now; None when it can.
        backlog: What waits there.
        lane: Where streams of it come from.
        holds: The numbers of the whole answers that it works on.
    """

    card: ModelCard
    reason: str | None
    backlog: Backlog = field(default_factory=Backlog)
    lane: LaneAddress | None = None
    holds: frozenset[int] = frozenset()

    @property
    def bundle(self) -> str:
        """Its bundle, as in `Accepted.bundle`: a replica has exactly one."""
        return self.card.bundles[0]


class ModelHandle(Protocol):
    """All replicas of one application, as the router sees them.

    Refusals come back as values: an exception would cross the process border wrapped and
    with a stack trace, at ten times the cost.
    """

    async def answer(self, call: Call) -> Answered | HeadpondError:
        """Run a call to its end on one replica.

        Raises:
            WorkerLost: The replica died, or none could be reached.
        """
        ...

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        """Run a stream to its end on one replica; cancelled with the awaiting task.

        What was admitted, the events and late errors come over the lane; here comes None
        when it is over, the error of a call that was refused, or, when the router has no
        lane to that replica yet, the address to open one at before trying again.

        Raises:
            WorkerLost: The replica died, or none could be reached.
        """
        ...

    def comes_over(self, stream: int, lane: LaneAddress) -> None:
        """Note that a stream comes from the replica at a lane: only that one can lose it."""
        ...

    async def statuses(self) -> Sequence[ReplicaStatus]:
        """Ask every replica how it is.

        Raises:
            WorkerLost: None could be reached.
        """
        ...

    async def asleep(self) -> bool:
        """Say whether it may have no replica at all, so that the next call wakes one.

        Raises:
            WorkerLost: Nobody could be asked.
        """
        ...

    async def expositions(self) -> Mapping[str, str]:
        """Return each replica's metrics in the Prometheus text format, by replica ID.

        Raises:
            WorkerLost: None could be reached.
        """
        ...
