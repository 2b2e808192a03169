"""Changes that only the holder of a task can make, within a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, insert, select, update

from headpond.jobs import tables
from headpond.jobs.claim import Claim, Span
from headpond.jobs.errors import LeaseLost
from headpond.jobs.job import Job, JobStatus
from headpond.jobs.rows import jobs_of
from headpond.jobs.task import Outcome, TaskKind, TaskState, new_task

_RETRY_S = 1.0
_RETRY_MOST_S = 60.0

FREED: Mapping[str, object] = {
    "state": TaskState.WAITING,
    "owner": None,
    "lease_until_s": None,
    "completed": 0,
    "failed": 0,
}
"""A task that waits for whoever comes."""


def retry_delay_s(tries: int) -> float:
    """Return how long a task waits that was tried so often in vain before."""
    return min(_RETRY_S * 2.0**tries, _RETRY_MOST_S)


def held(claim: Claim, now_s: float) -> ColumnElement[bool]:
    """Return the condition under which a claim still holds its task."""
    table = tables.tasks
    return and_(
        table.c.id == claim.task_id,
        table.c.owner == claim.owner,
        table.c.fence == claim.fence,
        table.c.state == TaskState.RUNNING,
        table.c.lease_until_s > now_s,
    )


def change_held(
    connection: Connection, now_s: float, claim: Claim, values: Mapping[str, object]
) -> None:
    """Change a task that is held.

    Raises:
        LeaseLost: It is not held any more.
    """
    changed = connection.execute(update(tables.tasks).where(held(claim, now_s)).values(**values))
    if not changed.rowcount:
        raise LeaseLost


def was_handed_in(connection: Connection, claim: Claim) -> bool:
    """Say whether this claim has ended its task already: its answer was lost on the way."""
    table = tables.tasks
    done = select(table.c.id).where(
        table.c.id == claim.task_id,
        table.c.owner == claim.owner,
        table.c.fence == claim.fence,
        table.c.state == TaskState.DONE,
    )
    return connection.execute(done).first() is not None


def close_attempt(
    connection: Connection,
    now_s: float,
    task_id: str,
    fence: int,
    outcome: Outcome,
    note: str | None = None,
) -> None:
    """Note what became of an attempt."""
    table = tables.attempts
    connection.execute(
        update(table)
        .where(table.c.task_id == task_id, table.c.fence == fence)
        .values(ended_s=now_s, outcome=outcome, note=note)
    )


def end_job(
    connection: Connection,
    now_s: float,
    claim: Claim,
    status: JobStatus,
    values: Mapping[str, object],
    *,
    outcome: Outcome = Outcome.DONE,
) -> None:
    """End a job by one of its tasks; what others hold of it is taken from them.

    Raises:
        LeaseLost: The task is not held any more.
    """
    change_held(connection, now_s, claim, {"state": TaskState.DONE, "ended_s": now_s})
    close_attempt(connection, now_s, claim.task_id, claim.fence, outcome)
    table, attempts = tables.tasks, tables.attempts
    left = (table.c.job_id == claim.job.id, table.c.state != TaskState.DONE)
    open_ones = (
        attempts.c.ended_s.is_(None),
        attempts.c.task_id.in_(select(table.c.id).where(*left)),
    )
    taken = {"ended_s": now_s, "outcome": Outcome.RELEASED, "note": f"the job has {status}"}
    connection.execute(update(attempts).where(*open_ones).values(**taken))
    connection.execute(update(table).where(*left).values(**{**FREED, "state": TaskState.DONE}))
    over = {"status": status, "ended_s": now_s, "waits_for": None, **values}
    connection.execute(update(tables.jobs).where(tables.jobs.c.id == claim.job.id).values(**over))


def add_shards(
    connection: Connection,
    job_id: str,
    spans: Iterable[Span],
    *,
    failures: int = 0,
    not_before_s: float = 0.0,
) -> None:
    """Add shards that wait for a worker."""
    rows = [
        new_task(
            job_id,
            TaskKind.SHARD,
            input_key=span.input_key,
            first=span.first,
            stop=span.stop,
            work=span.work,
            failures=failures,
            not_before_s=not_before_s,
        )
        for span in spans
    ]
    if rows:
        connection.execute(insert(tables.tasks), rows)


def job_row(connection: Connection, job_id: str, *, lock: bool = False) -> RowMapping:
    """Return the row of a job; locked, until the transaction ends, when it will be changed."""
    query = select(tables.jobs).where(tables.jobs.c.id == job_id)
    if lock:
        query = query.with_for_update()
    return connection.execute(query).mappings().one()


def job_now(connection: Connection, now_s: float, row: RowMapping) -> Job:
    """Return a job of its row."""
    return next(jobs_of(connection, now_s, [row]))
