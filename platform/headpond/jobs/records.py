"""Records of a batch: a line of the input in, a line of the output or of the errors out."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from uuid import uuid4

import orjson

from headpond.dialect import ErrorAnswer, Raw
from headpond.jobs.job import JobStatus, LineError
from headpond.units import Work


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a shard.

    Attributes:
        index: Which it is, in the object that has it.
        custom_id: Its caller's name for it; None of one that can't be loaded.
        body: What is asked: the JSON of a request; None of one that is nested too deep.
        bytes: Its size, by which its work is estimated.
    """

    index: int
    custom_id: str | None
    body: bytes | None
    bytes: int


@dataclass(frozen=True, slots=True)
class ResultLine:
    """What became of one record.

    Attributes:
        line: JSON and a newline.
        completed: Whether it is a result, for the output file; else it is an error.
        work: What it came to.
        tried: Whether it was to be computed at all.
    """

    line: bytes
    completed: bool
    work: Work = field(default_factory=Work)
    tried: bool = True


def records_of(content: bytes, first: int, stop: int) -> list[Record]:
    """Return some records of an object that `reading` has checked and written."""
    lines = content.split(b"\n")[first:stop]
    records = []
    for index, line in enumerate(lines, start=first):
        parsed = orjson.loads(line)
        records.append(Record(index, parsed["custom_id"], _body(parsed["body"]), len(line)))
    return records


def _body(parsed: object) -> bytes | None:
    try:
        return orjson.dumps(parsed)
    except orjson.JSONEncodeError:
        # It reads what is nested deeper than what it writes.
        return None


def new_request_id() -> str:
    """Return an identifier for one record's request."""
    return f"batch_req_{uuid4().hex}"


def answered(record: Record, request_id: str, bundle: str, body: Raw, work: Work) -> ResultLine:
    """Return the output line of a record that was computed."""
    head = orjson.dumps(
        {
            "id": request_id,
            "custom_id": record.custom_id,
            "error": None,
            "response": {"status_code": 200, "request_id": request_id, "bundle": bundle},
        }
    )
    # The body is JSON already: it goes in as the last field of the response.
    return ResultLine(head[:-2] + b',"body":' + _json(body) + b"}}\n", True, work)


def refused(record: Record, request_id: str, bundle: str, error: ErrorAnswer) -> ResultLine:
    """Return the error line of a record that the model's route refused, as HTTP would."""
    response = {
        "status_code": error.status,
        "request_id": request_id,
        "bundle": bundle,
        "body": error.body,
    }
    line = {
        "id": request_id,
        "custom_id": record.custom_id,
        "response": response,
        "error": None,
    }
    return ResultLine(orjson.dumps(line) + b"\n", False)


def stopped(record: Record, stop: JobStatus) -> ResultLine:
    """Return the error line of a record that was not computed before its job had to stop."""
    code, reason = "batch_cancelled", "The batch was cancelled"
    if stop is JobStatus.EXPIRED:
        code, reason = "batch_expired", "The batch's time was over"
    line = failed(record.custom_id, code, f"{reason} before this record's turn.")
    return replace(line, tried=False)


def poisoned(record: Record, attempts: int) -> ResultLine:
    """Return the error line of a record that no worker has survived."""
    return failed(
        record.custom_id,
        "poison_record",
        f"What computed this record was lost with it {attempts} times.",
    )


def unreadable(error: LineError, custom_id: str | None) -> ResultLine:
    """Return the error line of an input line that is no record, with its name if it has one."""
    return failed(custom_id, error.code, f"Line {error.line}: {error.message}")


def failed(custom_id: str | None, code: str, message: str) -> ResultLine:
    """Return the error line of a record that has no response."""
    line = {
        "id": new_request_id(),
        "custom_id": custom_id,
        "response": None,
        "error": {"code": code, "message": message},
    }
    return ResultLine(orjson.dumps(line) + b"\n", False)


def _json(body: Raw) -> bytes:
    if body.media_type == "application/json":
        return body.content
    if body.media_type.startswith("text/"):
        return orjson.dumps(body.content.decode())
    encoded = base64.b64encode(body.content).decode()
    return orjson.dumps({"content_type": body.media_type, "base64": encoded})
