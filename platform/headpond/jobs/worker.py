"""The job worker: takes tasks, does them, and can be killed at any time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from headpond.call import Backend
from headpond.jobs.asking import Asker
from headpond.jobs.claim import Claim
from headpond.jobs.computing import Pace
from headpond.jobs.database import Database
from headpond.jobs.endpoints import BatchEndpoint
from headpond.jobs.errors import JobsUnavailable, LeaseLost, ObjectLost, ObjectsUnavailable
from headpond.jobs.job import LineError
from headpond.jobs.leases import Leases
from headpond.jobs.loss import report_loss
from headpond.jobs.objects import Objects
from headpond.jobs.parts import write_parts
from headpond.jobs.reading import read_input
from headpond.jobs.results import Results
from headpond.jobs.roots import Roots
from headpond.jobs.sharding import Shard
from headpond.jobs.task import TaskKind
from headpond.jobs.writing import write_files

log = structlog.get_logger(__name__)

_BEAT_S = 3.0
"""So often a worker tells how far it is, and hears what it is to do, or oftener."""
_DELAY_S = 5.0
_LEAST_TAIL = 16
_MOST_READS = 10
"""An input that could not be read so often fails its job."""
_MOST_WRITES = 10
"""Results that could not be written so often fail a job that is to stop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """How a worker works.

    Attributes:
        shards: Shards at once: while one ends, the others keep the engine busy.
        lease_s: After so long without a sign of a worker others take its tasks.
        poll_s: So long a worker that found nothing waits.
        pace: How each shard is run.
    """

    shards: int = 2
    lease_s: float = 30.0
    poll_s: float = 1.0
    pace: Pace = field(default_factory=Pace)


class Worker:
    """Takes tasks of all jobs, and does several at once."""

    def __init__(
        self,
        database: Database,
        objects: Objects,
        backend: Backend,
        endpoints: Mapping[str, BatchEndpoint],
        *,
        owner: str,
        options: WorkerOptions | None = None,
        roots: Roots | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Get ready; nothing is taken before `run`.

        Args:
            database: Of the jobs.
            objects: Where inputs and results lie.
            backend: Answers the records.
            endpoints: What jobs may ask, by path.
            owner: A name that no other worker has.
            options: How it works.
            roots: What jobs may read and write besides; nothing when absent.
            sleep: Waits for some seconds.
        """
        self._options = options or WorkerOptions()
        self._database = database
        self._leases = Leases(database, owner, lease_s=self._options.lease_s)
        self._results = Results(database)
        self._objects = objects
        self._roots = roots or Roots()
        self._backend = backend
        self._endpoints = endpoints
        self._sleep = sleep
        self._stopping = asyncio.Event()
        self._shards: set[Shard] = set()

    async def run(self) -> None:
        """Take and do tasks until `stop`; returns when none is held any more."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._options.shards):
                group.create_task(self._keep_working())

    def stop(self) -> None:
        """Take nothing more; what is under way is finished and handed in."""
        self._stopping.set()
        for shard in self._shards:
            shard.rest()

    async def step(self) -> bool:
        """Take one task and do it; say whether there was one.

        Raises:
            JobsUnavailable: The database did not answer.
        """
        claim = await self._leases.claim()
        if claim is None:
            return False
        await self._do(claim)
        return True

    async def _keep_working(self) -> None:
        while not self._stopping.is_set():
            try:
                if await self.step():
                    continue
                await self._leases.ask_for_tail(_LEAST_TAIL)
            except JobsUnavailable:
                log.warning("jobs_unavailable")
            # Workers that wait together don't ask together.
            wait_s = self._options.poll_s * random.uniform(0.5, 1.5)  # noqa: S311
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()

    async def _do(self, claim: Claim) -> None:
        """Do a task while its lease is kept."""
        shard = None
        if claim.kind is TaskKind.SHARD:
            shard = Shard(claim, self._leases, self._results, self._objects)
            self._shards.add(shard)
        work = asyncio.create_task(self._work(claim, shard))
        beat = asyncio.create_task(self._keep_lease(claim, shard, work))
        try:
            await asyncio.wait({work})
            error = None if work.cancelled() else work.exception()
            if error is not None:
                await self._conclude(claim if shard is None else shard.claim, error)
        except (LeaseLost, JobsUnavailable) as dropped:
            log.warning("task_dropped", task=claim.task_id, reason=dropped.message)
        finally:
            beat.cancel()
            work.cancel()
            if shard is not None:
                self._shards.discard(shard)

    async def _work(self, claim: Claim, shard: Shard | None) -> None:
        if shard is not None:
            await self._compute(claim, shard)
        elif claim.kind is TaskKind.READ:
            await self._read(claim)
        elif claim.orders.stop is not None and claim.failures >= _MOST_WRITES:
            text = "The results could not be written."
            await self._results.refuse(claim, [LineError("internal_error", text)])
        else:
            await self._write(claim)

    async def _compute(self, claim: Claim, shard: Shard) -> None:
        if claim.orders.stop is not None:
            await shard.give_up(claim.orders.stop)
            return
        endpoint = self._endpoints.get(claim.job.endpoint)
        if endpoint is None:
            reason = f"no worker here serves {claim.job.endpoint}"
            await self._leases.release(claim, delay_s=_DELAY_S, waits_for=reason)
            return
        asker = Asker(claim.job, endpoint, self._backend)
        await shard.compute(asker, self._options.pace, self._sleep)

    async def _write(self, claim: Claim) -> None:
        source, target = claim.job.source, claim.job.target
        if source is None or target is None:
            await write_files(claim, self._objects, self._results)
        else:
            stores = (self._objects, self._results, self._roots)
            await write_parts(claim, source, target, *stores)

    async def _read(self, claim: Claim) -> None:
        if claim.orders.stop is not None:
            await self._results.give_up(claim, claim.orders.stop)
            return
        if claim.failures >= _MOST_READS:
            text = "The input could not be read."
            await self._results.refuse(claim, [LineError("internal_error", text)])
            return
        found = await read_input(claim, self._objects, self._roots)
        if found.errors:
            await self._results.refuse(claim, found.errors)
        else:
            await self._results.accept(claim, found.spans, found.bad, found.lineage)

    async def _conclude(self, claim: Claim, error: BaseException) -> None:
        """Give a task back that could not be done.

        Raises:
            LeaseLost: It is not held any more.
            JobsUnavailable: The database did not answer.
        """
        match error:
            case LeaseLost() | JobsUnavailable():
                raise error
            case ObjectsUnavailable():
                log.warning("objects_unavailable", task=claim.task_id, reason=error.message)
                await self._leases.release(claim, delay_s=_DELAY_S, waits_for=error.message)
            case ObjectLost():
                log.warning("object_lost", task=claim.task_id, kind=claim.kind)
                await report_loss(self._database, claim, error)
            case Exception():
                log.error("task_failed", task=claim.task_id, kind=claim.kind, exc_info=error)
                await self._leases.fail(claim, f"{type(error).__name__}: {error}"[:500])
            case _:
                raise error

    async def _keep_lease(
        self, claim: Claim, shard: Shard | None, work: asyncio.Task[None]
    ) -> None:
        """Renew the lease again and again; a lease that is lost ends the work."""
        while True:
            await self._sleep(min(self._options.lease_s / 3, _BEAT_S))
            try:
                completed, failed = (0, 0) if shard is None else shard.counts
                orders = await self._leases.renew(claim, completed=completed, failed=failed)
                if shard is not None:
                    await shard.obey(orders)
            except JobsUnavailable:
                continue
            except LeaseLost:
                log.warning("lease_lost", task=claim.task_id)
                work.cancel()
                return
