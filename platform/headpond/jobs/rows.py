"""Rows of the tables as files and jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, case, func, select

from headpond.jobs import tables
from headpond.jobs.job import Job, JobStatus, LineError, Progress, Source, StoredFile, Target
from headpond.jobs.task import TaskKind, TaskState

_LATELY_S = 300.0
"""The rate of a job is that of its last minutes."""


def file_of(row: RowMapping) -> StoredFile:
    """Return a row of `files`."""
    return StoredFile(**row)


def jobs_of(connection: Connection, now_s: float, rows: Sequence[RowMapping]) -> Iterator[Job]:
    """Return rows of `jobs`, with what their shards that run have come to."""
    identifiers = [row["id"] for row in rows]
    running = _running(connection, identifiers)
    lately = _lately(connection, now_s, identifiers)
    for row in rows:
        now = running.get(row["id"], _Running())
        yield _job_of(row, now_s, now, lately.get(row["id"], 0) + now.work)


@dataclass(frozen=True, slots=True)
class _Running:
    """What a job's shards that run have come to: records, and work in the same proportion."""

    completed: int = 0
    failed: int = 0
    work: int = 0


def _running(connection: Connection, jobs: Sequence[str]) -> dict[str, _Running]:
    table = tables.tasks
    records = case((table.c.stop > table.c.first, table.c.stop - table.c.first), else_=1)
    done = table.c.completed + table.c.failed
    sums = (table.c.completed, table.c.failed, table.c.work * done / records)
    query = (
        select(table.c.job_id, *map(func.sum, sums))
        .where(table.c.job_id.in_(jobs), table.c.state == TaskState.RUNNING)
        .group_by(table.c.job_id)
    )
    return {job: _Running(*map(int, found)) for job, *found in connection.execute(query)}


def _lately(connection: Connection, now_s: float, jobs: Sequence[str]) -> dict[str, int]:
    """Return the work that was done in the last minutes, by job."""
    table = tables.tasks
    query = (
        select(table.c.job_id, func.sum(table.c.work))
        .where(
            table.c.job_id.in_(jobs),
            table.c.kind == TaskKind.SHARD,
            table.c.state == TaskState.DONE,
            table.c.ended_s > now_s - _LATELY_S,
        )
        .group_by(table.c.job_id)
    )
    return {job: int(work) for job, work in connection.execute(query)}


def _job_of(row: RowMapping, now_s: float, running: _Running, lately: int) -> Job:
    status = JobStatus(row["status"])
    began_s = row["in_progress_s"]
    rate = None
    if lately and began_s is not None and not status.over:
        rate = lately / max(min(now_s - began_s, _LATELY_S), 1e-3)
    work_done = row["work_done"] + running.work
    left = row["work_total"] - work_done
    return Job(
        id=row["id"],
        tenant=row["tenant"],
        endpoint=row["endpoint"],
        model=row["model"],
        bundle=row["bundle"],
        input_file_id=row["input_file_id"],
        source=None if row["source"] is None else Source(**row["source"]),
        target=None if row["target"] is None else Target(**row["target"]),
        window=row["window"],
        metadata=row["metadata"],
        output_expires_after_s=row["output_expires_after_s"],
        status=status,
        waits_for=row["waits_for"],
        errors=tuple(LineError(**error) for error in row["errors"]),
        progress=Progress(
            total=row["total"],
            completed=row["completed"] + running.completed,
            failed=row["failed"] + running.failed,
            work_total=row["work_total"],
            work_done=work_done,
            work_per_s=rate,
            estimated_end_s=None if rate is None else now_s + left / rate,
        ),
        usage=row["usage"],
        output_file_id=row["output_file_id"],
        error_file_id=row["error_file_id"],
        manifest_key=row["manifest_key"],
        created_s=row["created_s"],
        deadline_s=row["deadline_s"],
        in_progress_s=began_s,
        cancelling_s=row["cancelling_s"],
        finalizing_s=row["finalizing_s"],
        ended_s=row["ended_s"],
    )
