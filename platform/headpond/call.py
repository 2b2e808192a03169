"""A call on its way to a loop, the events that come back, and the backend between.

The HTTP layer is written against `Backend` alone. Two exist: the local loop inside a
model's replica, and the router's table of deployment handles.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from headpond.errors import HeadpondError
from headpond.sink import Placement
from headpond.units import Work


class Priority(IntEnum):
    """Who goes first among those that wait; a class never starves (see admission)."""

    BATCH = 0
    NORMAL = 1
    URGENT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What is known of a call before its body is read, and all that its turn depends on.

    Attributes:
        workload: The record's name.
        tenant: Who is served.
        priority: Its class in the waiting queue.
        deadline_s: Seconds left for the whole call.
    """

    workload: str
    tenant: str
    priority: Priority
    deadline_s: float

    @property
    def line(self) -> tuple[Priority, str]:
        """In which line it waits."""
        return self.priority, self.tenant


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One caller's request: items that are admitted together and finish together.

    Attributes:
        request_id: Echoed in `x-request-id`, logs and spans.
        tenant: Who is served; the key of fairness, quotas and cache namespaces.
        workload: The record's name.
        model: The alias or `name@version` the caller asked for.
        items: The workload's own request objects, at least one.
        priority: Its class in the waiting queue.
        deadline_s: Seconds left for the whole call when it was sent on.
        stream: Whether events are wanted as they come, or only at the end.
        trace: W3C `traceparent`, or None.
        store: Where its outputs go before it is done; None for only back to the caller.
        session: What it is part of: calls of one session go to the same version of a model.
            None for a call by itself.
    """

    request_id: str
    tenant: str
    workload: str
    model: str
    items: tuple[object, ...]
    priority: Priority = Priority.NORMAL
    deadline_s: float
    stream: bool = False
    trace: str | None = None
    store: Placement | None = None
    session: str | None = None

    @property
    def lot(self) -> str:
        """The token by which a version is chosen for it, where its model has several."""
        return self.session or self.request_id

    @property
    def claim(self) -> Claim:
        """What its turn depends on."""
        return Claim(
            workload=self.workload,
            tenant=self.tenant,
            priority=self.priority,
            deadline_s=self.deadline_s,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """The call is in the queue of one replica.

    Attributes:
        bundle: `name@version+digest12`, the value of `x-headpond-bundle`.
        model: The served model's name, as dialects echo it.
        work: The most the call can cost, as admitted.
    """

    bundle: str
    model: str
    work: Work


@dataclass(frozen=True, slots=True)
class Output:
    """One output of one item; the payload is the workload's own frozen type."""

    item: int
    payload: object

    def __reduce__(self) -> tuple[type[Output], tuple[int, object]]:
        """Cross a lane at a third of the cost of a frozen dataclass's own pickling."""
        return (Output, (self.item, self.payload))


@dataclass(frozen=True, slots=True)
class Done:
    """One item is complete; `work` is what it came to."""

    item: int
    work: Work


@dataclass(frozen=True, slots=True)
class Failed:
    """One item ended without a result. Other items go on."""

    item: int
    error: HeadpondError


@dataclass(frozen=True, slots=True)
class Ended:
    """The call is over: every item was done or failed, and all state is released.

    Attributes:
        work: What the call came to, over all items.
        phases_s: Seconds spent in each of the replica's phases, in the record's order.
    """

    work: Work
    phases_s: Mapping[str, float] = field(default_factory=dict)


Event = Output | Done | Failed | Ended
"""`Ended` is the last event of every call, and comes exactly once."""


class Answer(Protocol):
    """A call in progress."""

    @property
    def accepted(self) -> Accepted:
        """What was admitted, and on which bundle."""
        ...

    def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Iterate over the events; those of one engine step come together.

        Raises:
            HeadpondError: The call as a whole failed (deadline, lost worker).
        """
        ...

    async def feed(self, payload: object, units: int) -> None:
        """Hand more input to the call's one fed item; waits while too much waits already.

        Args:
            payload: The workload's own frozen type.
            units: How much it is along the batching axis; 0 for what is no input as such
                (the end of the input, a change of settings).

        Raises:
            HeadpondError: The call is over, for this reason; or it is not fed.
        """
        ...

    @property
    def waiting_units(self) -> int:
        """How many units of what was fed the engine has not passed yet."""
        ...

    async def close(self) -> None:
        """Let go of the call; cancels it when it is not over. Safe to call twice."""
        ...

    def when_over(self, told: Callable[[Work], None]) -> None:
        """Have `told` called once with what the call came to, when it is over.

        Also when it has failed, or was closed before. Never, when the replica was lost.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCard:
    """A model that can be asked for by name.

    Attributes:
        name: The alias callers use.
        workload: The record's name.
        bundles: Every version behind it, as in `Accepted.bundle`.
        created_s: Unix time at which the bundle was locked.
        limits: The bundle's limits by symbol, e.g. `{"context_tokens": 8192}`.
    """

    name: str
    workload: str
    bundles: tuple[str, ...]
    created_s: int
    limits: Mapping[str, int]


class Backend(Protocol):
    """What stands behind the HTTP layer."""

    def check_turn(self, claim: Claim) -> None:
        """Refuse a call that would wait too long whatever it asks for, before it is read.

        Raises:
            Overloaded: It would, with every model of its workload.
        """
        ...

    async def submit(self, call: Call) -> Answer:
        """Validate, plan and admit a call.

        Raises:
            HeadpondError: Refused; nothing was retained for the call.
        """
        ...

    def only_model(self, workload: str) -> str | None:
        """Return the name of the one model of a workload; None when there are several, or none."""
        ...

    def workload_of(self, model: str) -> str | None:
        """Return the workload that a model serves; None when there is no such model."""
        ...

    def bundle_of(self, model: str, token: str) -> str | None:
        """Return the bundle that a call for a model would go to now, as in `Accepted.bundle`.

        Args:
            model: An alias or a version.
            token: Chooses, where an alias has several: equal tokens choose the same.

        Raises:
            NotReady: The model is known, and its bundle is not, as nothing has answered yet.
        """
        ...

    async def models(self) -> Sequence[ModelCard]:
        """Return the models that can be asked for, by name."""
        ...

    async def not_ready(self) -> Mapping[str, str]:
        """Return the models that cannot serve now, each with the reason."""
        ...

    async def metrics(self) -> str:
        """Return this backend's metrics in the Prometheus text format."""
        ...
