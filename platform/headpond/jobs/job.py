"""A file, a job, and what is asked for when one is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

Row = TypeVar("Row")


class JobStatus(StrEnum):
    """Where a job is, in OpenAI's words."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether it stays as it is."""
        return self in _OVER


_OVER = {JobStatus.FAILED, JobStatus.COMPLETED, JobStatus.EXPIRED, JobStatus.CANCELLED}


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """A file of one tenant.

    Attributes:
        id: `file-...`.
        tenant: Whose it is.
        purpose: `batch`, `batch_output` or another of OpenAI's.
        filename: As its owner calls it.
        bytes: Its size.
        sha256: Its digest, in hex.
        key: Where the object store has it.
        created_s: Unix time.
        expires_s: Unix time from which it is gone; None for never.
    """

    id: str
    tenant: str
    purpose: str
    filename: str
    bytes: int
    sha256: str
    key: str
    created_s: float
    expires_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NewFile:
    """A file that lies in the object store already, to be told of.

    Attributes:
        id: Chosen by whoever stored it, from `new_file_id`.
        tenant: Whose it is.
        purpose: `batch`, `batch_output` or another of OpenAI's.
        filename: As its owner calls it.
        bytes: Its size.
        sha256: Its digest, in hex.
        key: Where the object store has it.
        expires_after_s: Seconds from now until it is gone; None for never.
    """

    id: str
    tenant: str
    purpose: str
    filename: str
    bytes: int
    sha256: str
    key: str
    expires_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class LineError:
    """What is wrong with the input, as `errors.data` of a batch lists it.

    Attributes:
        code: One word, e.g. `invalid_json_line`.
        message: For people.
        line: The line, from 1; None when it is about the whole file.
        param: The field at fault.
    """

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """All objects below a prefix, as a job's input.

    Attributes:
        url: The prefix, as fsspec knows it.
        format: `jsonl`, records as in a file; or `parquet`, a record a row.
        id_column: The column with `custom_id`, of Parquet.
        columns: Fields of the body and their columns, of Parquet; without any the column
            `body` has all of it.
        body: Fields that the body of every row has besides, of Parquet.
    """

    url: str
    format: str = "jsonl"
    id_column: str = "custom_id"
    columns: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The prefix below which a job's results are written: its URL, and their format."""

    url: str
    format: str = "jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewJob:
    """A job that is asked for.

    Attributes:
        id: Chosen by the asker, from `new_job_id`: its alias was resolved by it.
        tenant: Who asks.
        endpoint: The path that every line's `url` names.
        model: The model that its lines name; None when they name none.
        bundle: `name@version+digest12`: all its calls go there; None of an unknown model.
        input_file_id: The tenant's file; None of a job over a prefix.
        source: The prefix that it reads; None of a job over a file.
        target: Where its results go; None of a job over a file.
        window: `completion_window`, as asked.
        window_s: The same in seconds: the deadline.
        metadata: The caller's pairs.
        output_expires_after_s: Seconds that its files are kept; None for ever.
        idempotency_key: A second request with the key is answered by the first one's job.
        body_sha256: Tells whether a second request is the same, but for its file.
    """

    id: str
    tenant: str
    endpoint: str
    model: str | None
    bundle: str | None
    window: str
    window_s: float
    input_file_id: str | None = None
    source: Source | None = None
    target: Target | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    output_expires_after_s: float | None = None
    idempotency_key: str | None = None
    body_sha256: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a job is.

    Attributes:
        total: Records in all; 0 until the input is read.
        completed: Records with a result.
        failed: Records with an error.
        work_total: Estimated work, in bytes of the records' bodies.
        work_done: The part of it that is done; of records that were given up none is.
        work_per_s: What was done lately; None while nothing was.
        estimated_end_s: Unix time by which all may be done; None while unknown.
    """

    total: int
    completed: int
    failed: int
    work_total: int
    work_done: int
    work_per_s: float | None
    estimated_end_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job as it is now. Times are Unix seconds; None while it has not come to that.

    Attributes:
        id: `batch_...`.
        tenant: Whose it is.
        endpoint: The path that every line's `url` names.
        model: The model as asked.
        bundle: The one bundle that computes it, `name@version+digest12`.
        input_file_id: The file that it reads; None of a job over a prefix.
        source: The prefix that it reads; None of a job over a file.
        target: Where its results go; None of a job over a file.
        window: `completion_window`, as asked.
        metadata: The caller's pairs.
        output_expires_after_s: Seconds that its files are kept; None for ever.
        status: Where it is.
        waits_for: What keeps it from going on now, for people; None when nothing does.
        errors: What is wrong with the input, of a job that failed.
        progress: How far it is.
        usage: What its records came to, in the workload's units.
        output_file_id: Output lines, when it is over and has some.
        error_file_id: Error lines, when it is over and has some.
        manifest_key: Where the object store, or the target, has the manifest of its results.
        created_s: When it was asked for.
        deadline_s: When what is not done will be given up.
        in_progress_s: When its input was found good.
        cancelling_s: When it was asked to stop.
        finalizing_s: When its last record was done.
        ended_s: When its status became final.
    """

    id: str
    tenant: str
    endpoint: str
    model: str | None
    bundle: str | None
    input_file_id: str | None
    source: Source | None
    target: Target | None
    window: str
    metadata: Mapping[str, str]
    output_expires_after_s: float | None
    status: JobStatus
    waits_for: str | None
    errors: tuple[LineError, ...]
    progress: Progress
    usage: Mapping[str, int]
    output_file_id: str | None
    error_file_id: str | None
    manifest_key: str | None
    created_s: float
    deadline_s: float
    in_progress_s: float | None
    cancelling_s: float | None
    finalizing_s: float | None
    ended_s: float | None


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list, newest first, and whether there are more."""

    rows: tuple[Row, ...]
    has_more: bool
