"""Files and batches on the wire, as OpenAI has them: one shape for the server and its clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headpond.pattern import spelled

FILES_PATH = "/v1/files"
FILE_PATH = FILES_PATH + "/{file_id}"
CONTENT_PATH = FILE_PATH + "/content"
BATCHES_PATH = "/v1/batches"
BATCH_PATH = BATCHES_PATH + "/{batch_id}"
CANCEL_PATH = BATCH_PATH + "/cancel"
IDEMPOTENCY_KEY = "idempotency-key"

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
Status = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]
OVER: frozenset[Status] = frozenset({"failed", "completed", "expired", "cancelled"})
"""A batch of such a status stays as it is."""

_HOUR_S, _MONTH_S = 3_600, 2_592_000


class ExpiresAfter(BaseModel):
    """When a file goes away.

    Attributes:
        anchor: From when on is counted: when the file was made.
        seconds: An hour to thirty days.
    """

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=_HOUR_S, le=_MONTH_S)]


class FileRequest(BaseModel):
    """The fields of an upload, beside the file itself."""

    purpose: Purpose
    expires_after: ExpiresAfter | None = None


class FileObject(BaseModel):
    """One file of a tenant; times are Unix seconds."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = None
    filename: str
    purpose: str
    status: Literal["uploaded", "processed", "error"] = "processed"


class FileList(BaseModel):
    """Some files of a tenant; `last_id` is where the next page begins."""

    object: Literal["list"] = "list"
    data: tuple[FileObject, ...]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class FileDeleted(BaseModel):
    """A file that is gone."""

    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


Metadata = Annotated[
    dict[
        Annotated[str, Field(max_length=64)],
        Annotated[str, Field(max_length=512)],
    ],
    Field(max_length=16),
]
"""At most 16 pairs, which come back with the batch."""


BatchFormat = Literal["jsonl", "parquet"]
Name = Annotated[str, Field(min_length=1, max_length=256)]


class BatchInput(BaseModel):
    """All objects below a prefix, read in order of their names; an addition to OpenAI's API.

    Attributes:
        url: The prefix, below a root of the deployer's: `s3://bucket/folder/`.
        format: `jsonl`, records as in a file; or `parquet`, a record a row.
        id_column: The column with each row's `custom_id`, of Parquet.
        columns: Fields of the body and the columns that have them, of Parquet; without any the
            column `body` has all of it, as a struct or as JSON.
        body: Fields that the body of every row has besides, of Parquet, e.g. `model`.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    url: Annotated[str, Field(max_length=1024)]
    format: BatchFormat = "jsonl"
    id_column: Name = "custom_id"
    columns: Annotated[dict[Name, Name], Field(max_length=64)] | None = None
    body: Annotated[dict[Name, JsonValue], Field(max_length=64)] | None = None


class BatchOutput(BaseModel):
    """Where the results go, and at last `manifest.json`; an addition to OpenAI's API.

    Attributes:
        url: A prefix that has no objects yet, below a root of the deployer's.
        format: `jsonl`, lines as in an output file; or `parquet`.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    url: Annotated[str, Field(max_length=1024)]
    format: BatchFormat = "jsonl"


class BatchRequest(BaseModel):
    """A batch that is asked for.

    Attributes:
        input_file_id: An uploaded file of the purpose `batch`: one request a line.
        input: A prefix in an object store, instead of an uploaded file.
        output: Where the results go, with `input` only.
        endpoint: The route that every line's `url` names.
        completion_window: `24h`, or another number of hours or minutes.
        metadata: `on_invalid_line: skip` lets the good lines of a file with bad ones run.
        output_expires_after: How long its output and error files are kept.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    input_file_id: str | None = None
    input: BatchInput | None = None
    output: BatchOutput | None = None
    endpoint: str
    completion_window: Annotated[
        str,
        Field(pattern=r"^[1-9][0-9]{0,4}[hm]$"),
        spelled("must be a number of hours or minutes, such as 24h or 90m"),
    ]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchError(BaseModel):
    """What is wrong with one line of the input, or with all of it (`line` null)."""

    code: str | None = None
    line: int | None = None
    message: str | None = None
    param: str | None = None


class BatchErrors(BaseModel):
    """Everything that is wrong with the input of a batch that failed."""

    object: Literal["list"] = "list"
    data: tuple[BatchError, ...] = ()


class RequestCounts(BaseModel):
    """How many records there are, and what became of them so far."""

    total: int
    completed: int
    failed: int


class InputTokensDetails(BaseModel):
    """What OpenAI tells of input tokens besides."""

    cached_tokens: int = 0


class OutputTokensDetails(BaseModel):
    """What OpenAI tells of output tokens besides."""

    reasoning_tokens: int = 0


class BatchUsage(BaseModel):
    """Tokens of all records so far."""

    input_tokens: int
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int


class BatchProgress(BaseModel):
    """How far a batch is; an addition to OpenAI's fields.

    Attributes:
        work_total: Estimated work: the bytes of the records' bodies.
        work_done: The part of it that is done.
        work_per_s: What was done in a second lately; null while nothing was.
        estimated_completion_at: Unix time by which all may be done; null while unknown.
        on_time: Whether that is before `expires_at`; null while unknown.
    """

    work_total: int
    work_done: int
    work_per_s: float | None = None
    estimated_completion_at: int | None = None
    on_time: bool | None = None


class Batch(BaseModel):
    """One batch as it is now; times are Unix seconds. The last seven fields are additions.

    Attributes:
        input_file_id: Null of a batch over a prefix.
        expires_at: Its deadline: what is not done by then becomes an error `batch_expired`.
        bundle: The one bundle that computes it, `name@version+digest12`.
        waits_for: What keeps it from going on now, for people.
        work: What its records came to, in the workload's units.
        progress: How far it is.
        input: The prefix that it reads, instead of a file.
        output: Where its results go, instead of files.
        manifest_url: Of a batch over a prefix: it is there, and all results with it.
    """

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None = None
    errors: BatchErrors | None = None
    input_file_id: str | None = None
    completion_window: str
    status: Status
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts | None = None
    usage: BatchUsage | None = None
    metadata: Mapping[str, str] | None = None
    bundle: str | None = None
    waits_for: str | None = None
    work: Mapping[str, int] = Field(default_factory=dict)
    progress: BatchProgress | None = None
    input: BatchInput | None = None
    output: BatchOutput | None = None
    manifest_url: str | None = None

    @property
    def over(self) -> bool:
        """Whether it stays as it is."""
        return self.status in OVER


class BatchList(BaseModel):
    """Some batches of a tenant, newest first; `last_id` is where the next page begins."""

    object: Literal["list"] = "list"
    data: tuple[Batch, ...]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class ResultResponse(BaseModel):
    """The answer to one record.

    Attributes:
        status_code: As the endpoint would have answered; a refusal is 4xx.
        request_id: The server's name for the call.
        bundle: What computed it; an addition to OpenAI's fields.
        body: The answer's JSON.
    """

    status_code: int
    request_id: str | None = None
    bundle: str | None = None
    body: object = None


class ResultError(BaseModel):
    """Why a record has no answer, e.g. `batch_expired`."""

    code: str | None = None
    message: str | None = None


class BatchResult(BaseModel):
    """One line of an output or error file: the answer to a record, or why there is none."""

    id: str
    custom_id: str | None
    response: ResultResponse | None = None
    error: ResultError | None = None
