"""Loss: what a task needs is not in the object store any more, though that answers.

It may come back (a folder is not mounted yet, a backup is being restored), so it is looked
for some more times; then the job has failed, and says why. A store that does not answer is
another matter: that is waited for.
"""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, func, select, update

from headpond.jobs import tables
from headpond.jobs.claim import Claim
from headpond.jobs.database import Database
from headpond.jobs.errors import ObjectLost
from headpond.jobs.holding import (
    FREED,
    change_held,
    close_attempt,
    end_job,
    job_row,
    retry_delay_s,
    was_handed_in,
)
from headpond.jobs.job import JobStatus, LineError
from headpond.jobs.task import Outcome

MOST_LOOKS = 10
"""So often one task looks for what it needs: over four minutes."""


async def report_loss(database: Database, claim: Claim, error: ObjectLost) -> None:
    """Give a task back that lacks an object, to look again later; or end its job.

    Raises:
        LeaseLost: The task is not this worker's any more.
        JobsUnavailable: The database did not answer.
    """

    def report(connection: Connection, now_s: float) -> None:
        row = job_row(connection, claim.job.id, lock=True)
        if was_handed_in(connection, claim):
            return
        looks = _looks(connection, claim.task_id)
        if looks + 1 >= MOST_LOOKS:
            told = LineError(error.code or "object_lost", error.message)
            lost = {"errors": [asdict(told)]}
            end_job(connection, now_s, claim, JobStatus.FAILED, lost, outcome=Outcome.MISSING)
            return
        later_s = now_s + retry_delay_s(looks)
        change_held(connection, now_s, claim, {**FREED, "not_before_s": later_s})
        task = (claim.task_id, claim.fence)
        close_attempt(connection, now_s, *task, Outcome.MISSING, error.message)
        jobs = tables.jobs
        waiting = update(jobs).where(jobs.c.id == row["id"])
        connection.execute(waiting.values(waits_for=error.message))

    await database.write(report)


def _looks(connection: Connection, task_id: str) -> int:
    """Return how often a task has looked in vain."""
    table = tables.attempts
    vain = (table.c.task_id == task_id, table.c.outcome == Outcome.MISSING)
    return connection.execute(select(func.count()).where(*vain)).scalar_one()
