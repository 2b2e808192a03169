"""Tasks: the parts of a job that workers take, one at a time each."""

from __future__ import annotations

from enum import StrEnum
from uuid import uuid4


class TaskKind(StrEnum):
    """What is to be done."""

    READ = "read"
    """Check the job's input, and cut it into shards."""
    SHARD = "shard"
    """Compute the records of one shard."""
    WRITE = "write"
    """Join the results of all shards into the job's files, check them, and publish."""


RANKS = {TaskKind.WRITE: 0, TaskKind.READ: 1, TaskKind.SHARD: 2}
"""Which kind goes first: what ends a job, then what tells of a bad one."""


class TaskState(StrEnum):
    """Where a task is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


class Outcome(StrEnum):
    """What became of an attempt."""

    DONE = "done"
    RELEASED = "released"
    """Given back by its worker, which stops or waits for something."""
    FAILED = "failed"
    """Its worker says that it could not be done."""
    LOST = "lost"
    """Its worker was not heard of for a lease."""
    MISSING = "missing"
    """What it needs is not in the object store."""
    CUT = "cut"
    """Its records were given to smaller tasks."""


def new_task(
    job_id: str,
    kind: TaskKind,
    *,
    input_key: str | None = None,
    first: int = 0,
    stop: int = 0,
    work: int = 0,
    failures: int = 0,
    not_before_s: float = 0.0,
) -> dict[str, object]:
    """Return the row of a task that waits for a worker."""
    return {
        "id": f"task-{uuid4().hex}",
        "job_id": job_id,
        "kind": kind,
        "rank": RANKS[kind],
        "state": TaskState.WAITING,
        "not_before_s": not_before_s,
        "failures": failures,
        "fence": 0,
        "input_key": input_key,
        "first": first,
        "stop": stop,
        "work": work,
        "tail_wanted": False,
        "completed": 0,
        "failed": 0,
        "usage": {},
    }
