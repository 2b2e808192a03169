"""The OpenAPI 3.1 document, derived from the records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from pydantic import BaseModel

from headpond import models_wire
from headpond.call import Priority
from headpond.dialect import Route
from headpond.engine import Json
from headpond.errors import (
    AuthenticationFailed,
    DeadlineExceeded,
    EngineFailed,
    HeadpondError,
    InvalidRequest,
    ModelNotFound,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    PermissionDenied,
    RateLimited,
    WorkerLost,
)
from headpond.http import headers, models, openapi_jobs, openapi_usage, probes, workloads
from headpond.http.errors import SessionNotFound, UpgradeRequired
from headpond.http.openapi_parts import (
    ErrorBody,
    JsonObject,
    Mode,
    Schemas,
    errors,
    get,
    header_texts,
    ok,
)
from headpond.record import WorkloadRecord

OPENAPI_PATH = "/openapi.json"

_PARAMETER = re.compile(r"\{(\w+)\}")
_NO_WORD = re.compile(r"\W+")

_REFUSALS: tuple[type[HeadpondError], ...] = (AuthenticationFailed, PermissionDenied)
_CALL_ERRORS: tuple[type[HeadpondError], ...] = (
    InvalidRequest,
    *_REFUSALS,
    ModelNotFound,
    DeadlineExceeded,
    PayloadTooLarge,
    RateLimited,
    EngineFailed,
    WorkerLost,
    Overloaded,
    NotReady,
)
_LONGEST_DEADLINE_MS = 86_400_000
_ANSWER_HEADERS = {
    "x-request-id": "The request's identifier.",
    "x-headpond-bundle": "The bundle that answered: name@version+digest.",
    "x-headpond-work": "What was charged; on streams, the most that can be.",
    "server-timing": "The phases in milliseconds; on streams a trailing comment.",
}


def document(
    records: Sequence[WorkloadRecord], *, secured: bool, jobs: bool = False, usage: bool = False
) -> JsonObject:
    """Return the document of an app that serves these records.

    Args:
        records: The workloads served.
        secured: Whether keys are configured.
        jobs: Whether files and batches are kept.
        usage: Whether usage is kept.
    """
    schemas = Schemas(_wanted(records, jobs=jobs, usage=usage))
    paths: dict[str, JsonObject] = {}
    for record in records:
        for route in record.routes:
            item = paths.setdefault(route.path, {})
            if route.conversation is not None:
                item.setdefault("get", _socket(record, route, schemas))
            else:
                item.setdefault(route.method.lower(), _operation(record, route, schemas))
    doc: JsonObject = {
        "openapi": "3.1.0",
        "info": {"title": "Headpond", "version": version("headpond")},
        "tags": [{"name": record.name, "description": record.summary} for record in records],
        "paths": {
            **paths,
            **_platform_paths(schemas),
            **(openapi_jobs.paths(schemas) if jobs else {}),
            **(openapi_usage.paths(schemas) if usage else {}),
        },
        "components": {
            "schemas": schemas.definitions,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
    if secured:
        doc["security"] = [{"key": []}]
    return doc


def _wanted(
    records: Sequence[WorkloadRecord], *, jobs: bool, usage: bool
) -> list[tuple[type[BaseModel], Mode]]:
    """Return every wire type, and whether it comes in or goes out."""
    wanted: list[tuple[type[BaseModel], Mode]] = [
        (model, "serialization")
        for model in (
            ErrorBody,
            models_wire.Model,
            models_wire.ModelList,
            probes.Alive,
            probes.Readiness,
            probes.OipServer,
            probes.OipHealth,
        )
    ]
    for route in (route for record in records for route in record.routes):
        if route.request is not None:
            wanted.append((route.request, "validation"))
        if route.response is not None:
            wanted.append((route.response, "serialization"))
        if route.chunk is not None:
            wanted.append((route.chunk, "serialization"))
    wanted += openapi_usage.WIRE_TYPES if usage else ()
    return [*wanted, *(openapi_jobs.WIRE_TYPES if jobs else ())]


def _operation(record: WorkloadRecord, route: Route, schemas: Schemas) -> JsonObject:
    content = {} if route.response is None else schemas.body(route.response)
    if route.chunk is not None:
        content["text/event-stream"] = {"schema": _event(route.chunk, schemas)}
    success: JsonObject = {
        "description": "The answer.",
        "headers": header_texts(_ANSWER_HEADERS),
        "content": content,
    }
    failures = (*_CALL_ERRORS, *(failure.error for failure in record.overload.failures))
    operation: JsonObject = {
        "summary": route.summary,
        "operationId": _NO_WORD.sub("_", f"{route.method.lower()}{route.path}"),
        "tags": [record.name],
        "parameters": [*_parameters(route), *_request_headers()],
        "responses": {"200": success, **errors(failures, schemas, route.fail)},
    }
    if route.request is not None:
        operation["requestBody"] = {"required": True, "content": _asked(route, schemas)}
    return operation


def _socket(record: WorkloadRecord, route: Route, schemas: Schemas) -> JsonObject:
    """Return what OpenAPI can say of a WebSocket: its handshake."""
    failures: tuple[type[HeadpondError], ...] = (
        InvalidRequest,
        *_REFUSALS,
        SessionNotFound,
        UpgradeRequired,
        RateLimited,
        Overloaded,
    )
    described = "A WebSocket; see the documentation for its messages."
    if route.example:
        described += f" A client's first one may be `{json.dumps(route.example)}`."
    return {
        "summary": route.summary,
        "description": described,
        "operationId": _NO_WORD.sub("_", f"socket{route.path}"),
        "tags": [record.name],
        "parameters": [*_parameters(route), *_resuming()],
        "responses": {
            "101": {"description": "The connection is a WebSocket from here on."},
            **errors(failures, schemas),
        },
    }


def _resuming() -> list[Json]:
    described = {
        "session": "The session to go on with, after its connection broke.",
        "last_event": "The last event that the client has of it: its number, or `event_<n>`.",
    }
    return [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
        for name, text in described.items()
    ]


def _asked(route: Route, schemas: Schemas) -> JsonObject:
    """Return what a route's body may be."""
    if route.request is None:
        return {}
    named = "model" in route.request.model_fields
    example: JsonObject = {**({"model": "model-name"} if named else {}), **route.example}
    schema = schemas.reference(route.request, "validation")
    content: JsonObject = {"application/json": {"schema": schema, "example": example}}
    if route.form:
        content["multipart/form-data"] = {"schema": schema}
    return content


def _parameters(route: Route) -> list[Json]:
    names = _PARAMETER.findall(route.path)
    found: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    if route.method == "GET" and "model" not in names:
        text = "Which model is meant, where several are served."
        query: JsonObject = {"name": "model", "in": "query", "description": text}
        found.append({**query, "schema": {"type": "string"}})
    return found


def _event(chunk: type[BaseModel], schemas: Schemas) -> JsonObject:
    """Return the schema of one server-sent event, as OpenAPI 3.1 describes a stream."""
    payload: JsonObject = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [schemas.reference(chunk), schemas.reference(ErrorBody)]},
    }
    done: JsonObject = {"const": "[DONE]"}
    return {
        "type": "object",
        "description": "One event of a stream, which is what `stream: true` asks for.",
        "properties": {"event": {"type": "string"}, "data": {"anyOf": [done, payload]}},
        "required": ["data"],
    }


def _request_headers() -> list[Json]:
    priorities: list[Json] = [priority.name.lower() for priority in Priority]
    described: Mapping[str, tuple[str, JsonObject]] = {
        "x-request-id": ("Echoed; made when absent.", {"type": "string"}),
        headers.DEADLINE: (
            "Milliseconds left for the whole request.",
            {"type": "integer", "maximum": _LONGEST_DEADLINE_MS},
        ),
        headers.PRIORITY: ("Class in the waiting queue.", {"type": "string", "enum": priorities}),
        headers.SESSION: (
            "Calls of one session go to the same version of a model.",
            {"type": "string", "pattern": headers.IDENTIFIER},
        ),
        "traceparent": ("W3C trace context.", {"type": "string"}),
    }
    return [
        {"name": name, "in": "header", "description": text, "schema": schema}
        for name, (text, schema) in described.items()
    ]


def _platform_paths(schemas: Schemas) -> JsonObject:
    refused = errors(_REFUSALS, schemas)
    model: JsonObject = {"name": "model", "in": "path", "required": True}
    model["schema"] = {"type": "string"}
    ready = _readiness(schemas.body(probes.Readiness))
    text: JsonObject = {"text/plain": {"schema": {"type": "string"}}}
    anything: JsonObject = {"application/json": {"schema": {"type": "object"}}}
    return {
        models_wire.MODELS_PATH: get(
            "List the models.", ok(schemas.body(models_wire.ModelList)) | refused
        ),
        models.ONE_PATH.replace(":path", ""): {
            **get(
                "Show one model.",
                ok(schemas.body(models_wire.Model)) | errors((*_REFUSALS, ModelNotFound), schemas),
            ),
            "parameters": [model],
        },
        workloads.INDEX_PATH: get("Show what each workload declares.", ok(anything) | refused),
        probes.ALIVE_PATH: get("Tell whether the process lives.", ok(schemas.body(probes.Alive))),
        **{path: get("Tell whether models can serve.", ready) for path in probes.READY_PATHS},
        probes.OIP_PATH: get("Show the server.", ok(schemas.body(probes.OipServer))),
        probes.OIP_LIVE_PATH: get(
            "Tell whether the process lives.", ok(schemas.body(probes.OipHealth))
        ),
        probes.OIP_READY_PATH: get(
            "Tell whether models can serve.", _readiness(schemas.body(probes.OipHealth))
        ),
        probes.METRICS_PATH: get("Show metrics for Prometheus.", ok(text) | refused),
    }


def _readiness(content: JsonObject) -> JsonObject:
    return {
        "200": {"description": "Every model can serve.", "content": content},
        "503": {"description": "Some cannot.", "content": content},
    }
