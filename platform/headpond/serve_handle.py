"""A deployment handle of Ray Serve as the router's `ModelHandle`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from ray.exceptions import RayError
from ray.serve import get_deployment_handle
from ray.serve.exceptions import RayServeException

from headpond.errors import HeadpondError, WorkerLost
from headpond.hop import Answered, ReplicaStatus
from headpond.rollouts.keeper import RouterReport
from headpond.serving import may_sleep

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle, DeploymentResponse

    from headpond.call import Call
    from headpond.lane import LaneAddress

Outcome = TypeVar("Outcome")

MODEL_DEPLOYMENT = "Model"
"""The name of the one deployment in every model's application."""


ROUTER_DEPLOYMENT = "Router"
"""The name of the one deployment in a router's application."""


class ServeHandle:
    """Calls the replicas of one application over Serve's gRPC transport."""

    def __init__(self, handle: DeploymentHandle[object], app: str) -> None:
        # By value over gRPC: passing references through the object store costs several
        # times more for messages of this size.
        self._handle = handle.options(_by_reference=False)
        self._app = app

    async def answer(self, call: Call) -> Answered | HeadpondError:
        """Run a call to its end on one replica; cancelled with the awaiting task."""
        response = self._handle.answer.remote(call)
        return await _outcome(cast("DeploymentResponse[Answered | HeadpondError]", response))

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        """Run a stream to its end on one replica; cancelled with the awaiting task.

        A unary call of Serve: a streaming one costs twice as much to open.
        """
        response = self._handle.stream.remote(call, router_id, stream)
        return await _outcome(
            cast("DeploymentResponse[LaneAddress | HeadpondError | None]", response)
        )

    async def statuses(self) -> Sequence[ReplicaStatus]:
        """Ask every replica how it is."""
        replies = await self._ask_all("status")
        return [reply for reply in replies if isinstance(reply, ReplicaStatus)]

    async def asleep(self) -> bool:
        """Say whether its configuration lets it have no replica, and it runs as configured."""
        try:
            return await may_sleep(self._app)
        except RayError as error:
            raise WorkerLost from error

    async def expositions(self) -> Mapping[str, str]:
        """Return each replica's metrics in the Prometheus text format, by replica ID."""
        replies = await self._ask_all("exposition")
        return dict(reply for reply in replies if isinstance(reply, tuple))

    async def _ask_all(self, method: str) -> Sequence[object]:
        return await _all(self._handle, method)


async def _all(handle: DeploymentHandle[object], method: str) -> Sequence[object]:
    try:
        replies: Sequence[object] = await handle.broadcast(method).results_async(
            return_exceptions=True
        )
    except (RayError, RayServeException) as error:
        raise WorkerLost from error
    return replies


async def router_reports(app: str) -> Sequence[RouterReport]:
    """Ask every router of an application what it knows of rollouts.

    Raises:
        WorkerLost: None could be reached.
    """
    try:
        handle = get_deployment_handle(ROUTER_DEPLOYMENT, app_name=app)
    except (RayError, RayServeException) as error:
        raise WorkerLost from error
    replies = await _all(handle, "rollouts")
    return [reply for reply in replies if isinstance(reply, RouterReport)]


async def _outcome(response: DeploymentResponse[Outcome]) -> Outcome:
    try:
        return await response
    except asyncio.CancelledError:
        response.cancel()  # type: ignore[no-untyped-call]
        raise
    except (RayError, RayServeException) as error:
        raise WorkerLost from error


def connect(app: str) -> ServeHandle | None:
    """Return the handle of a model's application, or None while it does not exist."""
    try:
        return ServeHandle(get_deployment_handle(MODEL_DEPLOYMENT, app_name=app), app)
    except (RayError, RayServeException):
        return None
