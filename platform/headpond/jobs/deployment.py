"""Job workers as a Ray Serve deployment: they feed the models that run beside them.

A worker finds every model's application by itself, whatever aliases stand for: a job goes
on with the bundle that it was made for as long as that is served.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress

import structlog
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application, Deployment

from headpond.bundle.alias import AliasTable
from headpond.deployment import resolved
from headpond.errors import NotReady
from headpond.jobs.computing import Pace
from headpond.jobs.endpoints import batch_endpoints
from headpond.jobs.settings import JobStore
from headpond.jobs.store import Jobs
from headpond.jobs.sweeping import keep_sweeping
from headpond.jobs.worker import Worker, WorkerOptions
from headpond.registry import workloads
from headpond.routing import RoutedBackend
from headpond.serve_handle import MODEL_DEPLOYMENT, connect
from headpond.settings import Settings
from headpond.telemetry.logs import configure_logging

log = structlog.get_logger(__name__)

_LOOK_S = 2.0
_PATIENCE_S = 60.0
_NICENESS = 10
"""What a worker computes itself gives way to engines and routers on the same cores."""


class JobWorkerArgs(BaseModel):
    """The `args` of the job workers' application in a Serve config.

    Attributes:
        store: Where jobs are kept; the router's is the same.
        settings: Telemetry: inline, or the path of a YAML file.
        workers: Processes; each takes several shards.
        shards: Shards that a worker runs at once: while one ends, the others go on.
        in_flight: Records of one shard that are asked for at once.
        shard_s: After so long what is done of a shard is handed in.
        lease_s: After so long without a sign of a worker others take its tasks.
        drain_s: How long a worker that is stopped may finish what it has asked for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    store: JobStore = JobStore()
    settings: Settings | str = Settings()
    workers: int = Field(default=1, ge=1)
    shards: int = Field(default=2, ge=1)
    in_flight: int = Field(default=64, ge=1)
    shard_s: float = Field(default=20.0, gt=0)
    lease_s: float = Field(default=30.0, ge=1)
    drain_s: float = Field(default=30.0, ge=0)

    def options(self) -> WorkerOptions:
        """Return the part a worker needs to know."""
        pace = Pace(in_flight=self.in_flight, shard_s=self.shard_s)
        return WorkerOptions(shards=self.shards, lease_s=self.lease_s, pace=pace)


class JobWorker:
    """One process of job workers."""

    async def __init__(self, args: JobWorkerArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        """Connect to the store, and begin to take tasks."""
        configure_logging(resolved(args.settings), sys.__stderr__)
        os.nice(_NICENESS)
        self._drain_s = args.drain_s
        self._backend = RoutedBackend(connect)
        self._database = await asyncio.to_thread(args.store.open_database, patience_s=_PATIENCE_S)
        replica = serve.get_replica_context().replica_id.unique_id
        objects = args.store.open_objects(patience_s=_PATIENCE_S)
        self._worker = Worker(
            self._database,
            objects,
            self._backend,
            batch_endpoints(workloads().values()),
            owner=f"{socket.gethostname()}/{os.getpid()}/{replica}",
            options=args.options(),
            roots=args.store.open_roots(patience_s=_PATIENCE_S),
        )
        self._tasks = [
            asyncio.create_task(self._keep_looking()),
            asyncio.create_task(self._worker.run()),
            asyncio.create_task(keep_sweeping(Jobs(self._database), objects)),
        ]

    async def check_health(self) -> None:
        """Tell Serve to replace this process when its worker has ended by an error.

        Raises:
            NotReady: It has.
        """
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise NotReady(f"the worker has ended: {task.exception()!r}")

    async def __del__(self) -> None:
        """Hand in what is under way, within the time there is."""
        if not hasattr(self, "_tasks"):
            return
        _, working, _ = self._tasks
        self._worker.stop()
        await asyncio.wait({working}, timeout=self._drain_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._backend.stop()
        self._database.close()

    async def _keep_looking(self) -> None:
        """Keep a table of all applications that serve a model, each under its own name."""
        known: frozenset[str] = frozenset()
        while True:
            with suppress(RayError):
                found = await asyncio.to_thread(_model_applications)
                if found != known:
                    await self._backend.start(AliasTable({app: {app: 1.0} for app in found}))
                    known = found
            await asyncio.sleep(_LOOK_S)


def _model_applications() -> frozenset[str]:
    applications = serve.status().applications
    return frozenset(
        name for name, status in applications.items() if MODEL_DEPLOYMENT in status.deployments
    )


def build(args: Mapping[str, object] | JobWorkerArgs) -> Application:
    """Build the job workers' application: `import_path: headpond.jobs.deployment:build`.

    Raises:
        pydantic.ValidationError: Names the argument at fault.
    """
    # Serve hands over plain mappings: it reads annotations that are not strings only.
    parsed = JobWorkerArgs.model_validate(args)
    deployment: Deployment = serve.deployment(
        name="JobWorker",
        num_replicas=parsed.workers,
        health_check_period_s=2,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=parsed.drain_s + 5.0,
        ray_actor_options={"num_cpus": 0},
    )(JobWorker)
    return deployment.bind(parsed)
