"""Results: how a worker hands in what it has done, and jobs come from one status to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, RowMapping, insert, select, update

from headpond.jobs import tables
from headpond.jobs.claim import Attempt, Claim, DoneShard, Part, ShardResult, Span
from headpond.jobs.database import Database
from headpond.jobs.errors import ObjectLost
from headpond.jobs.holding import (
    FREED,
    add_shards,
    change_held,
    close_attempt,
    end_job,
    job_row,
    was_handed_in,
)
from headpond.jobs.job import JobStatus, LineError, NewFile
from headpond.jobs.store import add_file
from headpond.jobs.task import Outcome, TaskKind, TaskState, new_task

_MOST_RUNS = 3
"""A shard whose results were lost so often is not run once more."""


class Results:
    """What workers hand in; each method is one transaction, and only the holder's counts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def refuse(self, claim: Claim, errors: Sequence[LineError]) -> None:
        """Hand in an input that can't be run: the job has failed.

        Raises:
            LeaseLost: The task is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """
        await self._end(claim, JobStatus.FAILED, {"errors": [asdict(error) for error in errors]})

    async def give_up(self, claim: Claim, stop: JobStatus) -> None:
        """End a job that was to stop before its input was read.

        Raises:
            LeaseLost: The task is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """
        over = JobStatus.EXPIRED if stop is JobStatus.EXPIRED else JobStatus.CANCELLED
        await self._end(claim, over, {})

    async def accept(
        self,
        claim: Claim,
        spans: Sequence[Span],
        bad: ShardResult | None,
        lineage: Part | None = None,
    ) -> None:
        """Hand in an input that was read: its shards wait for workers from now on.

        Args:
            claim: The task of reading.
            spans: Every record, once.
            bad: Lines that are no records, where such are to be passed over.
            lineage: The list of the objects that were read, of a job over a prefix.

        Raises:
            LeaseLost: The task is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """
        failed = 0 if bad is None else bad.failed
        total = failed + sum(span.stop - span.first for span in spans)

        def begin(connection: Connection, now_s: float) -> None:
            row = job_row(connection, claim.job.id, lock=True)
            if was_handed_in(connection, claim):
                return
            change_held(connection, now_s, claim, {"state": TaskState.DONE, "ended_s": now_s})
            close_attempt(connection, now_s, claim.task_id, claim.fence, Outcome.DONE)
            add_shards(connection, claim.job.id, spans)
            if bad is not None:
                shard = new_task(claim.job.id, TaskKind.SHARD) | _result(now_s, bad)
                connection.execute(insert(tables.tasks).values(**shard))
            values: dict[str, object] = {
                "total": total,
                "failed": failed,
                "work_total": sum(span.work for span in spans),
                "in_progress_s": now_s,
                "waits_for": None,
            }
            if lineage is not None:
                values |= {"input_key": lineage.key, "input_sha256": lineage.sha256}
            if row["status"] == JobStatus.VALIDATING:
                values["status"] = JobStatus.IN_PROGRESS
            _change_job(connection, claim.job.id, values)
            _finish_computing(connection, now_s, row["id"])

        await self._database.write(begin)

    async def hand_in(
        self,
        claim: Claim,
        done: Span,
        result: ShardResult,
        tail: Span | None = None,
        *,
        delay_s: float = 0.0,
        waits_for: str | None = None,
    ) -> None:
        """Hand in a shard, or its first records; the others become one that waits.

        Args:
            claim: The shard.
            done: The records that are done.
            result: What became of them.
            tail: The records that are not.
            delay_s: Nobody takes the tail before that is over.
            waits_for: What the tail waits for, for people.

        Raises:
            LeaseLost: The task is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """

        def finish(connection: Connection, now_s: float) -> None:
            # Who changes the job waits here for others that do: none misses the last shard.
            row = job_row(connection, claim.job.id, lock=True)
            if was_handed_in(connection, claim):
                return
            shorter = {"stop": done.stop, "work": done.work}
            change_held(connection, now_s, claim, {**_result(now_s, result), **shorter})
            close_attempt(connection, now_s, claim.task_id, claim.fence, Outcome.DONE)
            if tail is not None:
                add_shards(connection, claim.job.id, [tail], not_before_s=now_s + delay_s)
            _change_job(
                connection, row["id"], {**_counted(row, result, done.work), "waits_for": waits_for}
            )
            _finish_computing(connection, now_s, row["id"])

        await self._database.write(finish)

    async def shards(self, claim: Claim) -> tuple[DoneShard, ...]:
        """Return all shards of the job whose files a task is to write.

        Raises:
            JobsUnavailable: The database did not answer.
        """
        table, of_attempt = tables.tasks, tables.attempts

        def find(connection: Connection, _: float) -> tuple[DoneShard, ...]:
            rows = connection.execute(
                select(table)
                .where(table.c.job_id == claim.job.id, table.c.kind == TaskKind.SHARD)
                .order_by(table.c.input_key, table.c.first)
            ).mappings()
            attempts: dict[str, list[Attempt]] = {}
            for row in connection.execute(
                select(of_attempt)
                .join(table, table.c.id == of_attempt.c.task_id)
                .where(table.c.job_id == claim.job.id)
                .order_by(of_attempt.c.fence)
            ).mappings():
                values = {name: row[name] for name in row if name != "task_id"}
                attempts.setdefault(row["task_id"], []).append(Attempt(**values))
            return tuple(_done_shard(row, attempts.get(row["id"], [])) for row in rows)

        return await self._database.read(find)

    async def redo(self, claim: Claim, broken: Sequence[DoneShard]) -> None:
        """Have shards run again whose results are not what was stored; then the files wait.

        Raises:
            ObjectLost: One can't be run again, or was so often that the store keeps nothing.
            LeaseLost: The task is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """
        if any(shard.span is None or shard.times_done >= _MOST_RUNS for shard in broken):
            raise ObjectLost("Results are not in the object store any more.")

        def reopen(connection: Connection, now_s: float) -> None:
            row = job_row(connection, claim.job.id, lock=True)
            change_held(connection, now_s, claim, {"state": TaskState.DONE, "ended_s": now_s})
            close_attempt(
                connection, now_s, claim.task_id, claim.fence, Outcome.FAILED, "broken results"
            )
            taken = {"completed": row["completed"], "failed": row["failed"]}
            work, usage = row["work_done"], Counter(row["usage"])
            for shard in broken:
                taken["completed"] -= shard.result.completed
                taken["failed"] -= shard.result.failed
                usage.subtract(shard.result.usage)
                work -= 0 if shard.span is None else shard.span.work
                connection.execute(
                    update(tables.tasks)
                    .where(tables.tasks.c.id == shard.task_id)
                    .values(**FREED, ended_s=None, usage={})
                )
            values = {**taken, "work_done": work, "usage": dict(+usage)}
            if row["status"] == JobStatus.FINALIZING:
                values |= {"status": JobStatus.IN_PROGRESS, "finalizing_s": None}
            _change_job(connection, claim.job.id, values)

        await self._database.write(reopen)

    async def publish(
        self,
        claim: Claim,
        manifest_key: str,
        output: NewFile | None = None,
        error: NewFile | None = None,
    ) -> None:
        """Hand in a job's files: from now on the job is over, and its owner sees them.

        A job over a prefix has none: its parts lie below its target already.

        Raises:
            LeaseLost: The task is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """

        def show(connection: Connection, now_s: float) -> None:
            row = job_row(connection, claim.job.id, lock=True)
            if was_handed_in(connection, claim):
                return
            change_held(connection, now_s, claim, {"state": TaskState.DONE, "ended_s": now_s})
            close_attempt(connection, now_s, claim.task_id, claim.fence, Outcome.DONE)
            for file in (output, error):
                if file is not None:
                    add_file(connection, now_s, file)
            values = {
                "status": _final_status(row),
                "ended_s": now_s,
                "manifest_key": manifest_key,
                "output_file_id": None if output is None else output.id,
                "error_file_id": None if error is None else error.id,
                "waits_for": None,
            }
            _change_job(connection, claim.job.id, values)

        await self._database.write(show)

    async def _end(self, claim: Claim, status: JobStatus, values: Mapping[str, object]) -> None:
        def end(connection: Connection, now_s: float) -> None:
            if not was_handed_in(connection, claim):
                end_job(connection, now_s, claim, status, values)

        await self._database.write(end)


def _final_status(row: RowMapping) -> JobStatus:
    if row["status"] == JobStatus.CANCELLING:
        return JobStatus.CANCELLED
    return JobStatus.EXPIRED if row["expired"] else JobStatus.COMPLETED


def _change_job(connection: Connection, job_id: str, values: Mapping[str, object]) -> None:
    connection.execute(update(tables.jobs).where(tables.jobs.c.id == job_id).values(**values))


def _finish_computing(connection: Connection, now_s: float, job_id: str) -> None:
    """Let the files be written when no shard is left."""
    table = tables.tasks
    left = select(table.c.id).where(
        table.c.job_id == job_id,
        table.c.kind == TaskKind.SHARD,
        table.c.state != TaskState.DONE,
    )
    if connection.execute(left.limit(1)).first() is not None:
        return
    connection.execute(insert(table).values(**new_task(job_id, TaskKind.WRITE)))
    _change_job(connection, job_id, {"finalizing_s": now_s})
    jobs = tables.jobs
    going = (jobs.c.id == job_id, jobs.c.status == JobStatus.IN_PROGRESS)
    connection.execute(update(jobs).where(*going).values(status=JobStatus.FINALIZING))


def _counted(row: RowMapping, result: ShardResult, work: int) -> dict[str, object]:
    usage = Counter(row["usage"])
    usage.update(result.usage)
    return {
        "completed": row["completed"] + result.completed,
        "failed": row["failed"] + result.failed,
        "work_done": row["work_done"] + work,
        "usage": dict(usage),
        "expired": row["expired"] or result.expired,
    }


def _result(now_s: float, result: ShardResult) -> dict[str, object]:
    output, error = result.output, result.error
    return {
        "state": TaskState.DONE,
        "ended_s": now_s,
        "completed": result.completed,
        "failed": result.failed,
        "usage": dict(result.usage),
        "output_key": None if output is None else output.key,
        "output_bytes": None if output is None else output.bytes,
        "output_sha256": None if output is None else output.sha256,
        "error_key": None if error is None else error.key,
        "error_bytes": None if error is None else error.bytes,
        "error_sha256": None if error is None else error.sha256,
    }


def _done_shard(row: RowMapping, attempts: Sequence[Attempt]) -> DoneShard:
    span = None
    if row["input_key"] is not None:
        span = Span(
            input_key=row["input_key"], first=row["first"], stop=row["stop"], work=row["work"]
        )
    result = ShardResult(
        completed=row["completed"],
        failed=row["failed"],
        usage=row["usage"],
        output=_part(row, "output"),
        error=_part(row, "error"),
    )
    return DoneShard(task_id=row["id"], span=span, result=result, attempts=tuple(attempts))


def _part(row: RowMapping, name: str) -> Part | None:
    if row[f"{name}_key"] is None:
        return None
    return Part(key=row[f"{name}_key"], bytes=row[f"{name}_bytes"], sha256=row[f"{name}_sha256"])
