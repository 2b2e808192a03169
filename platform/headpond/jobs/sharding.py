"""One shard in the hands of a worker: loaded, computed, parted when asked, and handed in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from headpond.jobs.asking import Asker
from headpond.jobs.claim import Claim, Orders, Part, ShardResult, Span
from headpond.jobs.computing import Pace, ShardRun
from headpond.jobs.errors import JobsUnavailable
from headpond.jobs.job import JobStatus
from headpond.jobs.leases import Leases
from headpond.jobs.objects import Objects
from headpond.jobs.records import Record, ResultLine, poisoned, records_of, stopped
from headpond.jobs.results import Results

MOST_FAILURES = 3
"""A shard that was tried in vain so often is cut in halves, each to be tried once."""
MOST_LOADS = 6
"""A record that was tried in vain so often is told of without a name: it can't be loaded."""

_DELAY_S = 5.0


class Shard:
    """A shard that is held.

    Attributes:
        claim: The shard as it is held now: it is shorter after a part was given up.
    """

    def __init__(self, claim: Claim, leases: Leases, results: Results, objects: Objects) -> None:
        """Take over a claim."""
        self.claim = claim
        self._orders = claim.orders
        self._leases = leases
        self._results = results
        self._objects = objects
        self._run: ShardRun | None = None
        self._resting = False
        self._handing_in = False
        self._changing = asyncio.Lock()

    @property
    def counts(self) -> tuple[int, int]:
        """How many records have a result by now, and how many an error."""
        if self._run is None:
            return 0, 0
        return self._run.tally.completed, self._run.tally.failed

    def rest(self) -> None:
        """Start nothing more; what is under way is finished and handed in."""
        self._resting = True
        if self._run is not None:
            self._run.rest()

    async def obey(self, orders: Orders) -> None:
        """Take orders that came with the lease.

        Raises:
            LeaseLost: The shard is not this worker's any more.
        """
        self._orders = orders
        if self._run is None:
            return
        self._run.obey(orders)
        if orders.give_tail:
            async with self._changing:
                # Parts change hands before the rest is handed in, or not at all.
                if not self._handing_in:
                    await self._give_tail(self._run)

    async def compute(
        self, asker: Asker, pace: Pace, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        """Compute the shard and hand it in; what can't be done now is given back.

        Raises:
            LeaseLost: The shard is not this worker's any more.
            ObjectLost: The object store has not the shard's records.
            ObjectsUnavailable: The object store failed for too long.
            JobsUnavailable: The database did not answer.
        """
        if await self._isolated():
            return
        records = await self._load()
        run = self._run = ShardRun(records, asker, self._orders, pace, sleep=sleep)
        if self._resting:
            run.rest()
        await run.run()
        async with self._changing:
            self._handing_in = True
        await self._hand_in(run.records, run.done(), run.waits_for)

    async def give_up(self, stop: JobStatus) -> None:
        """Hand the shard in with an error for each record: its job is to stop.

        Raises:
            LeaseLost: The shard is not this worker's any more.
            ObjectLost: The object store has not the shard's records.
            ObjectsUnavailable: The object store failed for too long.
            JobsUnavailable: The database did not answer.
        """
        if await self._isolated():
            return
        records = await self._load()
        await self._hand_in(records, [stopped(record, stop) for record in records], None)

    async def _load(self) -> list[Record]:
        claim = self.claim
        content = await self._objects.get(claim.input_key or "")
        return await asyncio.to_thread(records_of, content, claim.first, claim.stop)

    async def _isolated(self) -> bool:
        """Part a shard that kills its workers; of one record, say that it does.

        Nothing is loaded before this: to fail at it is a try in vain too. A record that only
        has to be stopped is loaded for its name some times more.
        """
        claim = self.claim
        if claim.failures < MOST_FAILURES:
            return False
        if claim.stop - claim.first > 1:
            await self._leases.cut(claim, _halves(claim), failures=MOST_FAILURES - 1)
            return True
        if claim.failures >= MOST_LOADS:
            record = Record(claim.first, None, None, claim.work)
        elif claim.orders.stop is None:
            (record,) = await self._load()
        else:
            return False
        await self._hand_in([record], [poisoned(record, claim.failures)], None)
        return True

    async def _give_tail(self, run: ShardRun) -> None:
        tail = run.give_tail()
        if not tail:
            return
        head = self._span(run.records)
        while True:
            try:
                await self._leases.give_tail(self.claim, head, self._span(tail))
            except JobsUnavailable:
                # It may have come through: only trying on, or losing the lease, ends this.
                continue
            break
        self.claim = replace(self.claim, stop=head.stop, work=head.work)

    async def _hand_in(
        self, records: Sequence[Record], lines: Sequence[ResultLine], waits_for: str | None
    ) -> None:
        delay_s = 0.0 if waits_for is None else _DELAY_S
        if not lines:
            await self._leases.release(self.claim, delay_s=delay_s, waits_for=waits_for)
            return
        done, left = records[: len(lines)], records[len(lines) :]
        await self._results.hand_in(
            self.claim,
            replace(self._span(done), work=_tried_bytes(done, lines)),
            await self._stored(lines),
            self._span(left) if left else None,
            delay_s=delay_s,
            waits_for=waits_for,
        )

    async def _stored(self, lines: Sequence[ResultLine]) -> ShardResult:
        """Put the lines into the object store."""
        completed = [each.line for each in lines if each.completed]
        failed = [each.line for each in lines if not each.completed]
        usage: dict[str, int] = {}
        for each in lines:
            for unit, amount in each.work.items():
                usage[unit] = usage.get(unit, 0) + amount
        return ShardResult(
            completed=len(completed),
            failed=len(failed),
            usage=usage,
            output=await self._part("output", completed),
            error=await self._part("error", failed),
            expired=self._orders.stop is JobStatus.EXPIRED
            and not all(each.tried for each in lines),
        )

    async def _part(self, name: str, lines: Sequence[bytes]) -> Part | None:
        if not lines:
            return None
        claim = self.claim
        key = f"jobs/{claim.job.id}/{claim.task_id}-{claim.fence}-{name}.jsonl"
        stored = await self._objects.put(key, b"".join(lines))
        return Part(key=key, bytes=stored.bytes, sha256=stored.sha256)

    def _span(self, records: Sequence[Record]) -> Span:
        """Return records that lie one behind the other as a span."""
        return Span(
            input_key=self.claim.input_key or "",
            first=records[0].index,
            stop=records[-1].index + 1,
            work=sum(record.bytes for record in records),
        )


def _tried_bytes(records: Sequence[Record], lines: Sequence[ResultLine]) -> int:
    """Return the size of the records that were not given up: the work that is done."""
    pairs = zip(records, lines, strict=True)
    return sum(record.bytes for record, line in pairs if line.tried)


def _halves(claim: Claim) -> list[Span]:
    """Return the records of a shard as two spans; the size of each is not known, nor loaded."""
    middle = (claim.first + claim.stop) // 2
    key, work = claim.input_key or "", claim.work // 2
    return [
        Span(input_key=key, first=claim.first, stop=middle, work=work),
        Span(input_key=key, first=middle, stop=claim.stop, work=claim.work - work),
    ]
