"""A deployment handle of Ray Serve as the router's `ModelHandle`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from grpc.aio import AioRpcError  # type: ignore[import-untyped]
from ray.exceptions import RayError
from ray.serve import get_deployment_handle
from ray.serve.exceptions import RayServeException

from headpond.errors import HeadpondError, WorkerLost
from headpond.hop import Answered, ReplicaStatus
from headpond.roll_call import RollCall
from headpond.rollouts.keeper import RouterReport
from headpond.serving import may_sleep

if TYPE_CHECKING:
    from ray.serve._private.replica_result import ReplicaResult, gRPCReplicaResult
    from ray.serve.handle import DeploymentHandle, DeploymentResponse
    from ray.serve.request_router import RequestRouter

    from headpond.call import Call
    from headpond.lane import LaneAddress

Outcome = TypeVar("Outcome")

MODEL_DEPLOYMENT = "Model"
"""The name of the one deployment in every model's application."""

_ANSWER_S = 0.8
"""What a replica has time for to say how it is; less than lies between two polls."""

_NUMBER_BITS = 62
"""Of what tells a whole answer from those of all routers; request IDs are their callers'."""

ROUTER_DEPLOYMENT = "Router"
"""The name of the one deployment in a router's application."""


class ServeHandle:
    """Calls the replicas of one application over Serve's gRPC transport."""

    def __init__(self, handle: DeploymentHandle[object], app: str) -> None:
        # By value over gRPC: passing references through the object store costs several
        # times more for messages of this size.
        self._handle = handle.options(_by_reference=False)
        self._app = app
        self._roll = RollCall()

    async def answer(self, call: Call) -> Answered | HeadpondError:
        """Run a call to its end on one replica; cancelled with the awaiting task."""
        number = secrets.randbits(_NUMBER_BITS)
        response = self._handle.answer.remote(call, number)
        return await self._outcome(
            cast("DeploymentResponse[Answered | HeadpondError]", response), number=number
        )

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        """Run a stream to its end on one replica; cancelled with the awaiting task.

        A unary call of Serve: a streaming one costs twice as much to open.
        """
        response = self._handle.stream.remote(call, router_id, stream)
        return await self._outcome(
            cast("DeploymentResponse[LaneAddress | HeadpondError | None]", response), stream
        )

    def comes_over(self, stream: int, lane: LaneAddress) -> None:
        """Note that a stream comes from the replica at a lane: only that one can lose it."""
        self._roll.comes_over(stream, lane)

    async def statuses(self) -> Sequence[ReplicaStatus]:
        """Ask every replica how it is; calls of one that does not answer for long are lost."""
        replies, missing = await self._ask_all("status")
        answered = {name: cast("ReplicaStatus", reply) for name, reply in replies.items()}
        self._roll.take(answered, missing)
        self._pass_by(self._roll.unfit)
        return self._roll.statuses

    async def asleep(self) -> bool:
        """Say whether its configuration lets it have no replica, and it runs as configured."""
        try:
            return await may_sleep(self._app)
        except RayError as error:
            raise WorkerLost from error

    async def expositions(self) -> Mapping[str, str]:
        """Return each replica's metrics in the Prometheus text format, by its name."""
        replies, _ = await self._ask_all("exposition")
        return dict(cast("tuple[str, str]", reply) for reply in replies.values())

    async def _ask_all(self, method: str) -> tuple[Mapping[str, object], Collection[str]]:
        """Ask every replica; return what came in time by actor, and the actors of the others.

        Those whose connection failed are gone, and are in neither.
        """
        try:
            # Serve's own `results_async` waits for the slowest, or drops them all.
            asking = self._handle.broadcast(method)
            asked = await asking._fetch_replica_results_async()  # noqa: SLF001 - as said above
        except (RayError, RayServeException) as error:
            raise WorkerLost from error
        tasks = {asyncio.create_task(_reply(each)): _actor(each) for each in asked}
        if not tasks:
            return {}, ()
        done, waiting = await asyncio.wait(tasks, timeout=_ANSWER_S)
        for task in waiting:
            task.cancel()
        replies = {tasks[task]: task.result() for task in done}
        known = {name: reply for name, reply in replies.items() if reply is not None}
        return known, [tasks[task] for task in waiting]

    def _pass_by(self, actors: Collection[str]) -> None:
        """Have Serve send nothing to these while others are free.

        It goes by the length of queues, as it last knew them, and a replica that stands still
        had a short one. A full one it asks again before it sends anything there.
        """
        if not actors:
            return
        # Serve takes no request router of ours where HAProxy is in front.
        router = cast(
            "RequestRouter",
            self._handle._router._asyncio_router.request_router,  # type: ignore[union-attr]  # noqa: SLF001
        )
        for name, replica in router.curr_replicas.items():
            if replica.actor_id.hex() in actors:
                router.on_new_queue_len_info(name, replica.max_ongoing_requests)

    async def _outcome(
        self,
        response: DeploymentResponse[Outcome],
        stream: int | None = None,
        number: int | None = None,
    ) -> Outcome:
        """Wait for a call, but no longer than for the replica that has taken it in.

        Raises:
            WorkerLost: It died or stands still, or no replica answers.
        """
        try:
            async with asyncio.timeout(None) as limit:
                if self._roll.nobody:
                    _expire(limit)
                with self._roll.waiting(partial(_expire, limit), stream, number) as waiting:
                    taken = await response._fetch_future_result_async()  # noqa: SLF001 - as `await response` does
                    waiting.replica = _actor(taken)
                    outcome: Outcome = await taken.get_async()  # type: ignore[no-untyped-call]
                    return outcome
        except asyncio.CancelledError:
            response.cancel()  # type: ignore[no-untyped-call]
            raise
        except TimeoutError:
            response.cancel()  # type: ignore[no-untyped-call]
            raise WorkerLost from None
        except (RayError, RayServeException, AioRpcError) as error:
            raise WorkerLost from error


def routers_of(app: str) -> ServeHandle:
    """Return the handle of an application's routers.

    Raises:
        WorkerLost: There is none.
    """
    try:
        return ServeHandle(get_deployment_handle(ROUTER_DEPLOYMENT, app_name=app), app)
    except (RayError, RayServeException) as error:
        raise WorkerLost from error


async def router_reports(app: str) -> Sequence[RouterReport]:
    """Ask every router of an application what it knows of rollouts.

    Raises:
        WorkerLost: None could be reached.
    """
    try:
        handle = get_deployment_handle(ROUTER_DEPLOYMENT, app_name=app)
        replies = await handle.broadcast("rollouts").results_async(return_exceptions=True)
    except (RayError, RayServeException) as error:
        raise WorkerLost from error
    return [reply for reply in replies if isinstance(reply, RouterReport)]


def _expire(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


def _actor(result: ReplicaResult) -> str:
    """Return who has taken a call in."""
    return cast("gRPCReplicaResult", result)._actor_id.hex()  # noqa: SLF001 - said nowhere else


async def _reply(asked: ReplicaResult) -> object:
    """Return what one replica says; None when it could not be reached."""
    try:
        return await asked.get_async()  # type: ignore[no-untyped-call]
    except (RayError, RayServeException, AioRpcError):
        return None
    except asyncio.CancelledError:
        asked.cancel()  # type: ignore[no-untyped-call]
        raise


def connect(app: str) -> ServeHandle | None:
    """Return the handle of a model's application, or None while it does not exist."""
    try:
        return ServeHandle(get_deployment_handle(MODEL_DEPLOYMENT, app_name=app), app)
    except (RayError, RayServeException):
        return None
