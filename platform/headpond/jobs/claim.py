"""What a worker holds, what it is told while it works, and what it hands in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headpond.jobs.job import Job, JobStatus
from headpond.jobs.task import Outcome, TaskKind

_HASTE_SHARE = 0.1
"""A job hurries when it would be done in the last part of its time, or later."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A task that one worker holds, until its lease ends.

    Attributes:
        task_id: The task.
        owner: The worker.
        fence: Grows with each claim: what an earlier holder writes is refused.
        kind: What is to be done.
        job: The job it is of, as it was at the claim.
        job_input_key: The job's input in the object store; of a job over a prefix the list of
            what was read, None before it was.
        job_input_sha256: Its digest.
        input_key: The object that has a shard's records; None of other kinds.
        first: The first record of a shard.
        stop: The one behind its last.
        work: Its estimated work.
        failures: How often it was tried in vain: its worker died, or said so.
        orders: What applies from the start.
    """

    task_id: str
    owner: str
    fence: int
    kind: TaskKind
    job: Job
    job_input_key: str | None
    job_input_sha256: str | None
    input_key: str | None
    first: int
    stop: int
    work: int
    failures: int
    orders: Orders


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    """What the holder of a task is told when it renews its lease.

    Attributes:
        stop: Why nothing more of the job is to be computed: it is `CANCELLING` or `EXPIRED`;
            None to go on.
        give_tail: Whether others are idle and would take a part of it.
        make_room: Whether a job waits that is smaller than what is left of this task.
        hurry: Whether the job may miss its deadline as a low priority.
        left_s: Seconds to the job's deadline.
    """

    stop: JobStatus | None
    give_tail: bool
    make_room: bool
    hurry: bool
    left_s: float


def orders_for(
    job: Job, now_s: float, *, give_tail: bool = False, make_room: bool = False
) -> Orders:
    """Return what the holder of one of a job's tasks is to do now."""
    stop = None
    if job.status is JobStatus.CANCELLING:
        stop = JobStatus.CANCELLING
    elif now_s >= job.deadline_s:
        stop = JobStatus.EXPIRED
    window_s = job.deadline_s - job.created_s
    end_s = job.progress.estimated_end_s
    if end_s is None:
        hurry = job.deadline_s - now_s < window_s / 2
    else:
        hurry = end_s > job.deadline_s - window_s * _HASTE_SHARE
    return Orders(
        stop=stop,
        give_tail=give_tail,
        make_room=make_room,
        hurry=hurry,
        left_s=job.deadline_s - now_s,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Records of one object: a shard that is to be.

    Attributes:
        input_key: The object.
        first: The first record.
        stop: The one behind the last.
        work: Estimated work.
    """

    input_key: str
    first: int
    stop: int
    work: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Result lines in the object store."""

    key: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardResult:
    """What became of the records of a shard, or of its first ones.

    Attributes:
        completed: Records with a result.
        failed: Records with an error.
        usage: What they came to.
        output: Their output lines, if any.
        error: Their error lines, if any.
        expired: Whether some were given up at the deadline.
    """

    completed: int
    failed: int
    usage: Mapping[str, int] = field(default_factory=dict)
    output: Part | None = None
    error: Part | None = None
    expired: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class DoneShard:
    """A shard that is done, as the manifest tells of it.

    Attributes:
        task_id: The shard.
        span: Its records; None of lines that were no records.
        result: What became of them.
        attempts: Each time it was taken: by whom, when, and the outcome.
    """

    task_id: str
    span: Span | None
    result: ShardResult
    attempts: tuple[Attempt, ...]

    @property
    def times_done(self) -> int:
        """How often it was handed in: once, unless what was stored is lost."""
        return sum(attempt.outcome == Outcome.DONE for attempt in self.attempts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One time a task was taken. Times are Unix seconds."""

    fence: int
    owner: str
    began_s: float
    ended_s: float | None
    outcome: str | None
    note: str | None
