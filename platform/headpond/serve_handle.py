"""A deployment handle of Ray Serve as the router's `ModelHandle`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from grpc.aio import AioRpcError
from ray.exceptions import RayError
from ray.serve import get_deployment_handle
from ray.serve.exceptions import RayServeException

from headpond.errors import HeadpondError, WorkerLost
from headpond.hop import Answered, ReplicaStatus
from headpond.placement import Placement
from headpond.roll_call import RollCall

if TYPE_CHECKING:
    from ray.serve._private.replica_result import ReplicaResult
    from ray.serve.handle import DeploymentHandle, DeploymentResponse

    from headpond.call import Call
    from headpond.lane import LaneAddress

Outcome = TypeVar("Outcome")

MODEL_DEPLOYMENT = "Model"
"""The name of the one deployment in every model's application."""

_ANSWER_S = 0.8
"""What a replica has time for to say how it is; less than lies between two polls."""


class ServeHandle:
    """Calls the replicas of one application over Serve's gRPC transport."""

    def __init__(self, handle: DeploymentHandle[object]) -> None:
        # By value over gRPC: passing references through the object store costs several
        # times more for messages of this size.
        self._handle = handle.options(_by_reference=False)
        self._roll = RollCall()

    async def answer(self, call: Call) -> Answered | HeadpondError:
        """Run a call to its end on one replica; cancelled with the awaiting task."""
        async with self._placed() as placement:
            response = self._handle.answer.remote(call, placement)
            return await _outcome(cast("DeploymentResponse[Answered | HeadpondError]", response))

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        """Run a stream to its end on one replica; cancelled with the awaiting task.

        A unary call of Serve: a streaming one costs twice as much to open.
        """
        async with self._placed() as placement:
            response = self._handle.stream.remote(call, router_id, stream, placement)
            return await _outcome(
                cast("DeploymentResponse[LaneAddress | HeadpondError | None]", response)
            )

    async def statuses(self) -> Sequence[ReplicaStatus]:
        """Ask every replica how it is; calls that wait for one that never says so are lost."""
        replies, missing = await self._ask_all("status")
        answered = dict(cast("tuple[str, ReplicaStatus]", reply) for reply in replies)
        self._roll.take(answered, missing=missing)
        return self._roll.statuses

    async def expositions(self) -> Mapping[str, str]:
        """Return each replica's metrics in the Prometheus text format, by replica ID."""
        replies, _ = await self._ask_all("exposition")
        return dict(cast("tuple[str, str]", reply) for reply in replies)

    @asynccontextmanager
    async def _placed(self) -> AsyncIterator[Placement]:
        """Wait for a call no longer than for the replica that holds it.

        Raises:
            WorkerLost: No replica answers, or the one that holds it has fallen silent.
        """
        if self._roll.nobody:
            raise WorkerLost
        try:
            async with asyncio.timeout(None) as limit:
                with self._roll.placed(partial(_expire, limit)) as placement:
                    yield placement
        except TimeoutError:
            raise WorkerLost from None

    async def _ask_all(self, method: str) -> tuple[Sequence[object], int]:
        """Ask every replica; return what came in time, and how many have not answered.

        Those whose connection failed are gone, and count for neither.
        """
        try:
            # Serve's own `results_async` waits for the slowest, or drops them all.
            asking = self._handle.broadcast(method)
            asked = await asking._fetch_replica_results_async()  # noqa: SLF001 - see above
        except (RayError, RayServeException) as error:
            raise WorkerLost from error
        tasks = [asyncio.create_task(_reply(each)) for each in asked]
        if not tasks:
            return (), 0
        done, waiting = await asyncio.wait(tasks, timeout=_ANSWER_S)
        for task in waiting:
            task.cancel()
        replies = [task.result() for task in done]
        return [reply for reply in replies if reply is not None], len(waiting)


def _expire(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


async def _reply(asked: ReplicaResult) -> object:
    """Return what one replica says; None when it could not be reached."""
    try:
        return await asked.get_async()
    except (RayError, RayServeException, AioRpcError):
        return None
    except asyncio.CancelledError:
        asked.cancel()
        raise


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
        return ServeHandle(get_deployment_handle(MODEL_DEPLOYMENT, app_name=app))
    except (RayError, RayServeException):
        return None
