"""Files and batches in the OpenAPI document."""

from __future__ import annotations

from pydantic import BaseModel

from headpond import jobs_wire
from headpond.engine import Json
from headpond.errors import (
    AuthenticationFailed,
    DeadlineExceeded,
    HeadpondError,
    InvalidRequest,
    NotFound,
    NotReady,
    PayloadTooLarge,
    PermissionDenied,
)
from headpond.http.openapi_parts import JsonObject, Mode, Schemas, errors, ok
from headpond.jobs.errors import (
    FileInUse,
    IdempotencyConflict,
    JobOver,
    JobsUnavailable,
    ObjectsUnavailable,
)

WIRE_TYPES: tuple[tuple[type[BaseModel], Mode], ...] = (
    (jobs_wire.FileRequest, "validation"),
    (jobs_wire.FileObject, "serialization"),
    (jobs_wire.FileList, "serialization"),
    (jobs_wire.FileDeleted, "serialization"),
    (jobs_wire.BatchRequest, "validation"),
    (jobs_wire.Batch, "serialization"),
    (jobs_wire.BatchList, "serialization"),
)

_TAG: list[Json] = ["batch"]
_ID_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
_SHOWN: tuple[type[HeadpondError], ...] = (InvalidRequest, AuthenticationFailed, JobsUnavailable)
_FOUND = (*_SHOWN, NotFound)
_TAKEN_IN = (*_SHOWN, DeadlineExceeded, PayloadTooLarge, ObjectsUnavailable)


def paths(schemas: Schemas) -> JsonObject:
    """Return the paths of files and batches."""
    return {**_file_paths(schemas), **_batch_paths(schemas)}


def _file_paths(schemas: Schemas) -> JsonObject:
    file_object = ok(schemas.body(jobs_wire.FileObject))
    listed = ok(schemas.body(jobs_wire.FileList))
    raw: JsonObject = {
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
    }
    purpose: JsonObject = {"type": "string", "pattern": "^[ -~]*$"}
    order: JsonObject = {"type": "string", "enum": ["asc", "desc"]}
    return {
        jobs_wire.FILES_PATH: {
            "get": _operation(
                "List the files.",
                "list_files",
                {**listed, **errors(_SHOWN, schemas)},
                parameters=[
                    *_paging(10_000),
                    _query("order", "Newest first, unless `asc`.", order),
                    _query("purpose", "Only files of this purpose.", purpose),
                ],
            ),
            "post": _operation(
                "Upload a file, at most 200 MB unless configured otherwise.",
                "upload_file",
                {**file_object, **errors(_TAKEN_IN, schemas)},
                body={"multipart/form-data": {"schema": _upload(schemas)}},
            ),
        },
        jobs_wire.FILE_PATH: {
            "parameters": [_identifier("file_id")],
            "get": _operation(
                "Show one file.", "show_file", {**file_object, **errors(_FOUND, schemas)}
            ),
            "delete": _operation(
                "Delete a file.",
                "delete_file",
                {
                    **ok(schemas.body(jobs_wire.FileDeleted)),
                    **errors((*_FOUND, FileInUse), schemas),
                },
            ),
        },
        jobs_wire.CONTENT_PATH: {
            "parameters": [_identifier("file_id")],
            "get": _operation(
                "Download a file.",
                "download_file",
                {**ok(raw), **errors((*_FOUND, ObjectsUnavailable), schemas)},
            ),
        },
    }


def _batch_paths(schemas: Schemas) -> JsonObject:
    batch = ok(schemas.body(jobs_wire.Batch))
    request: JsonObject = {
        "schema": schemas.reference(jobs_wire.BatchRequest, "validation"),
        "example": {
            "input_file_id": "file-…",
            "endpoint": "/v1/embeddings",
            "completion_window": "24h",
        },
    }
    key: JsonObject = {
        "name": jobs_wire.IDEMPOTENCY_KEY,
        "in": "header",
        "description": "The same request with the same key is answered by the same batch.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    }
    making = (*_TAKEN_IN, PermissionDenied, IdempotencyConflict, NotReady)
    return {
        jobs_wire.BATCHES_PATH: {
            "get": _operation(
                "List the batches, newest first.",
                "list_batches",
                {**ok(schemas.body(jobs_wire.BatchList)), **errors(_SHOWN, schemas)},
                parameters=_paging(100),
            ),
            "post": _operation(
                "Begin a batch over an uploaded file, or over the objects below a prefix.",
                "create_batch",
                {**batch, **errors(making, schemas)},
                parameters=[key],
                body={"application/json": request},
            ),
        },
        jobs_wire.BATCH_PATH: {
            "parameters": [_identifier("batch_id")],
            "get": _operation(
                "Show one batch.", "show_batch", {**batch, **errors(_FOUND, schemas)}
            ),
        },
        jobs_wire.CANCEL_PATH: {
            "parameters": [_identifier("batch_id")],
            "post": _operation(
                "Stop a batch; what is done is kept.",
                "cancel_batch",
                {**batch, **errors((*_FOUND, JobOver), schemas)},
            ),
        },
    }


def _upload(schemas: Schemas) -> JsonObject:
    """Return the fields of the form: those of `FileRequest`, and the file."""
    file: JsonObject = {"type": "string", "format": "binary"}
    with_file: JsonObject = {
        "type": "object",
        "required": ["file"],
        "properties": {"file": file},
    }
    return {"allOf": [schemas.reference(jobs_wire.FileRequest, "validation"), with_file]}


def _operation(
    summary: str,
    name: str,
    responses: JsonObject,
    *,
    parameters: list[Json] | None = None,
    body: JsonObject | None = None,
) -> JsonObject:
    operation: JsonObject = {
        "summary": summary,
        "operationId": name,
        "tags": _TAG,
        "responses": responses,
    }
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _paging(most: int) -> list[Json]:
    limit: JsonObject = {"type": "integer", "minimum": 1, "maximum": most}
    after: JsonObject = {"type": "string", "pattern": _ID_PATTERN}
    return [
        _query("after", "Begin behind this one.", after),
        _query("limit", "The most that are listed.", limit),
    ]


def _query(name: str, text: str, schema: JsonObject) -> JsonObject:
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _identifier(name: str) -> JsonObject:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
