"""Leases: how a worker takes tasks, keeps them, and gives them back.

A claim raises the task's fence and sets the end of its lease. Whatever a worker writes is
conditional on its fence and on its lease, so that one that wakes up late changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, insert, or_, select, update

from headpond.jobs import tables
from headpond.jobs.claim import Claim, Orders, Span, orders_for
from headpond.jobs.database import Database
from headpond.jobs.errors import LeaseLost
from headpond.jobs.holding import (
    FREED,
    add_shards,
    change_held,
    close_attempt,
    held,
    job_now,
    job_row,
    retry_delay_s,
)
from headpond.jobs.task import Outcome, TaskKind, TaskState


class Leases:
    """One worker's leases."""

    def __init__(self, database: Database, owner: str, *, lease_s: float) -> None:
        """Take tasks for one worker.

        Args:
            database: Of the jobs.
            owner: The worker; no two that live at once have the same.
            lease_s: So long a task is kept without `renew`.
        """
        self._database = database
        self._owner = owner
        self.lease_s = lease_s

    async def claim(self) -> Claim | None:
        """Take a task that waits, or whose worker was not heard of for a lease.

        What ends a job goes first; of shards those of the job that was served longest ago.

        Raises:
            JobsUnavailable: The database did not answer.
        """
        return await self._database.write(self._claim)

    async def renew(self, claim: Claim, *, completed: int = 0, failed: int = 0) -> Orders:
        """Keep a task for another lease, and tell how far it is.

        Raises:
            LeaseLost: It is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """

        def keep(connection: Connection, now_s: float) -> Orders:
            row = connection.execute(
                update(tables.tasks)
                .where(held(claim, now_s))
                .values(lease_until_s=now_s + self.lease_s, completed=completed, failed=failed)
                .returning(tables.tasks.c.tail_wanted)
            ).one_or_none()
            if row is None:
                raise LeaseLost
            job = job_now(connection, now_s, job_row(connection, claim.job.id))
            smaller = _smaller_job_waits(connection, now_s, claim, completed + failed)
            return orders_for(job, now_s, give_tail=bool(row.tail_wanted), make_room=smaller)

        return await self._database.write(keep)

    async def release(
        self, claim: Claim, *, delay_s: float = 0.0, waits_for: str | None = None
    ) -> None:
        """Give a task back undone; nobody takes it before `delay_s` is over.

        Raises:
            LeaseLost: It is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """

        def give_back(connection: Connection, now_s: float) -> None:
            change_held(connection, now_s, claim, {**FREED, "not_before_s": now_s + delay_s})
            close_attempt(
                connection, now_s, claim.task_id, claim.fence, Outcome.RELEASED, waits_for
            )
            if waits_for is not None:
                table = tables.jobs
                waiting = update(table).where(table.c.id == claim.job.id)
                connection.execute(waiting.values(waits_for=waits_for))

        await self._database.write(give_back)

    async def fail(self, claim: Claim, note: str) -> None:
        """Give a task back that could not be done; it is tried again, later each time.

        Raises:
            LeaseLost: It is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """
        delay_s = retry_delay_s(claim.failures)

        def put_back(connection: Connection, now_s: float) -> None:
            again = {"not_before_s": now_s + delay_s, "failures": claim.failures + 1}
            change_held(connection, now_s, claim, {**FREED, **again})
            close_attempt(connection, now_s, claim.task_id, claim.fence, Outcome.FAILED, note)

        await self._database.write(put_back)

    async def cut(self, claim: Claim, spans: Sequence[Span], *, failures: int) -> None:
        """Give a shard back as smaller ones.

        Args:
            claim: The shard.
            spans: All of its records, in order; at least two.
            failures: How often they count as tried in vain.

        Raises:
            LeaseLost: It is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """
        first, *others = spans

        def split(connection: Connection, now_s: float) -> None:
            smaller = {
                "stop": first.stop,
                "work": first.work,
                "failures": failures,
                "not_before_s": now_s,
            }
            change_held(connection, now_s, claim, {**FREED, **smaller})
            add_shards(connection, claim.job.id, others, failures=failures)
            close_attempt(connection, now_s, claim.task_id, claim.fence, Outcome.CUT)

        await self._database.write(split)

    async def give_tail(self, claim: Claim, head: Span, tail: Span) -> None:
        """Go on with the first records of a shard only; the others become one that waits.

        Raises:
            LeaseLost: It is not this worker's any more.
            JobsUnavailable: The database did not answer.
        """
        table = tables.tasks
        given = select(table.c.id).where(
            table.c.job_id == claim.job.id,
            table.c.input_key == tail.input_key,
            table.c.first == tail.first,
        )
        kept = {"stop": head.stop, "work": head.work, "tail_wanted": False}

        def part(connection: Connection, now_s: float) -> None:
            change_held(connection, now_s, claim, {**kept, "lease_until_s": now_s + self.lease_s})
            if connection.execute(given).first() is None:  # else this runs a second time
                add_shards(connection, claim.job.id, [tail])

        await self._database.write(part)

    async def ask_for_tail(self, least: int) -> bool:
        """Ask the holder of the longest shard to give up a part; say whether one was asked.

        Args:
            least: Shards with fewer records left are not worth it.

        Raises:
            JobsUnavailable: The database did not answer.
        """
        table = tables.tasks
        left = table.c.stop - table.c.first - table.c.completed - table.c.failed

        def ask(connection: Connection, now_s: float) -> bool:
            longest = connection.execute(
                select(table.c.id, table.c.fence)
                .where(
                    table.c.kind == TaskKind.SHARD,
                    table.c.state == TaskState.RUNNING,
                    table.c.lease_until_s > now_s,
                    table.c.tail_wanted.is_(False),
                    left >= least,
                )
                .order_by(left.desc())
                .limit(1)
            ).one_or_none()
            if longest is None:
                return False
            one = and_(table.c.id == longest.id, table.c.fence == longest.fence)
            asked = connection.execute(update(table).where(one).values(tail_wanted=True))
            return asked.rowcount == 1

        return await self._database.write(ask)

    def _claim(self, connection: Connection, now_s: float) -> Claim | None:
        found = _claimable(connection, now_s)
        if found is None:
            return None
        if found["state"] == TaskState.RUNNING:
            close_attempt(connection, now_s, found["id"], found["fence"], Outcome.LOST)
        row = self._take(connection, now_s, found)
        connection.execute(
            insert(tables.attempts).values(
                task_id=row["id"], fence=row["fence"], owner=self._owner, began_s=now_s
            )
        )
        if row["kind"] == TaskKind.SHARD:
            table = tables.jobs
            served = update(table).where(table.c.id == row["job_id"]).values(claimed_s=now_s)
            connection.execute(served)
        of_job = job_row(connection, row["job_id"])
        job = job_now(connection, now_s, of_job)
        return Claim(
            task_id=row["id"],
            owner=self._owner,
            fence=row["fence"],
            kind=TaskKind(row["kind"]),
            job=job,
            job_input_key=of_job["input_key"],
            job_input_sha256=of_job["input_sha256"],
            input_key=row["input_key"],
            first=row["first"],
            stop=row["stop"],
            work=row["work"],
            failures=row["failures"],
            orders=orders_for(job, now_s),
        )

    def _take(self, connection: Connection, now_s: float, found: RowMapping) -> RowMapping:
        table = tables.tasks
        lost = found["state"] == TaskState.RUNNING
        values = {
            **FREED,
            "state": TaskState.RUNNING,
            "owner": self._owner,
            "fence": found["fence"] + 1,
            "lease_until_s": now_s + self.lease_s,
            "failures": found["failures"] + int(lost),
            "tail_wanted": False,
        }
        taken = update(table).where(table.c.id == found["id"]).values(**values).returning(table)
        return connection.execute(taken).mappings().one()


def _claimable(connection: Connection, now_s: float) -> RowMapping | None:
    """Return the task whose turn it is; locked where the database locks rows."""
    table, jobs = tables.tasks, tables.jobs
    waits = _waits(now_s)
    lost = and_(table.c.state == TaskState.RUNNING, table.c.lease_until_s <= now_s)
    return (
        connection.execute(
            select(table)
            .join(jobs, jobs.c.id == table.c.job_id)
            .where(or_(waits, lost))
            .order_by(table.c.rank, jobs.c.claimed_s, table.c.not_before_s, table.c.first)
            .limit(1)
            .with_for_update(of=table, skip_locked=True)
        )
        .mappings()
        .one_or_none()
    )


def _smaller_job_waits(connection: Connection, now_s: float, claim: Claim, done: int) -> bool:
    """Say whether a job waits of which nothing runs, with less to do than is left of a shard.

    A large one has to wait for its turn; a small one would wait much longer than it takes.
    """
    records = claim.stop - claim.first
    if claim.kind is not TaskKind.SHARD or done >= records:
        return False
    table, jobs = tables.tasks, tables.jobs
    served = select(table.c.job_id).where(
        table.c.state == TaskState.RUNNING, table.c.lease_until_s > now_s
    )
    waiting = (
        select(table.c.id)
        .join(jobs, jobs.c.id == table.c.job_id)
        .where(
            _waits(now_s),
            jobs.c.waits_for.is_(None),
            jobs.c.work_total - jobs.c.work_done < claim.work * (records - done) // records,
            jobs.c.id.not_in(served),
        )
    )
    return connection.execute(waiting.limit(1)).first() is not None


def _waits(now_s: float) -> ColumnElement[bool]:
    table = tables.tasks
    return and_(table.c.state == TaskState.WAITING, table.c.not_before_s <= now_s)
