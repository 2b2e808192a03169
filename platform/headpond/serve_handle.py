"""A deployment handle of Ray Serve as the router's `ModelHandle`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ray.exceptions import RayError
from ray.serve import get_deployment_handle
from ray.serve.exceptions import RayServeException

from headpond.errors import HeadpondError, WorkerLost
from headpond.hop import Answered, Opened, ReplicaStatus

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

    from headpond.call import Call

MODEL_DEPLOYMENT = "Model"
"""The name of the one deployment in every model's application."""


class ServeHandle:
    """Calls the replicas of one application over Serve's gRPC transport."""

    def __init__(self, handle: DeploymentHandle[object]) -> None:
        # By value over gRPC: passing references through the object store costs several
        # times more for messages of this size.
        by_value = handle.options(_by_reference=False)
        self._handle = by_value
        self._streaming = by_value.options(stream=True)

    async def answer(self, call: Call) -> Answered | HeadpondError:
        """Run a call to its end on one replica; cancelled with the awaiting task."""
        response = self._handle.answer.remote(call)
        try:
            answered: Answered | HeadpondError = await response
        except (RayError, RayServeException) as error:
            raise WorkerLost from error
        return answered

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> AsyncGenerator[Opened | HeadpondError, None]:
        """Open a stream on one replica and hold it; closing the generator cancels it."""
        response = cast(
            "DeploymentResponseGenerator[Opened | HeadpondError]",
            self._streaming.stream.remote(call, router_id, stream),
        )
        over = False
        try:
            async for opened in response:
                yield opened
            over = True
        except (RayError, RayServeException) as error:
            raise WorkerLost from error
        finally:
            if not over:
                response.cancel()  # type: ignore[no-untyped-call]

    async def statuses(self) -> Sequence[ReplicaStatus]:
        """Ask every replica how it is; empty when none runs."""
        try:
            replies = await self._handle.broadcast("status").results_async(return_exceptions=True)
        except (RayError, RayServeException):
            return ()
        return [reply for reply in replies if isinstance(reply, ReplicaStatus)]

    async def expositions(self) -> Mapping[str, str]:
        """Return each replica's metrics in the Prometheus text format, by replica ID."""
        try:
            replies = await self._handle.broadcast("exposition").results_async(
                return_exceptions=True
            )
        except (RayError, RayServeException) as error:
            raise WorkerLost from error
        return dict(reply for reply in replies if isinstance(reply, tuple))


def connect(app: str) -> ServeHandle | None:
    """Return the handle of a model's application, or None while it does not exist."""
    try:
        return ServeHandle(get_deployment_handle(MODEL_DEPLOYMENT, app_name=app))
    except (RayError, RayServeException):
        return None
