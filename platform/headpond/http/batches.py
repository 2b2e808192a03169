"""`/v1/batches`: jobs over files of requests, as OpenAI has them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headpond.call import Backend
from headpond.errors import InvalidRequest, NotFound
from headpond.http.auth import Caller, Keyring
from headpond.http.batch_object import batch_object
from headpond.http.body import read_body
from headpond.http.errors import invalid_request
from headpond.http.headers import Headers
from headpond.http.listing import Paging, path_id
from headpond.http.responses import json_response
from headpond.jobs.access import JobsAccess
from headpond.jobs.endpoints import BatchEndpoint
from headpond.jobs.gathering import first_records
from headpond.jobs.job import NewJob, Source, Target
from headpond.jobs.pinning import first_lines, pin
from headpond.jobs.prefixes import open_source, require_new
from headpond.jobs.store import Jobs, new_job_id
from headpond.jobs_wire import (
    BATCH_PATH,
    BATCHES_PATH,
    CANCEL_PATH,
    IDEMPOTENCY_KEY,
    BatchList,
    BatchRequest,
)

MOST_LISTED = 100

_MOST_BODY_BYTES = 2**16
_KEY = re.compile(rb"[\x21-\x7e]{1,255}")
_UNITS_S = {"h": 3600.0, "m": 60.0}
_LONGEST_S = 30 * 86_400.0
_ON_INVALID_LINE = ("on_invalid_line", ("fail", "skip"))


class Batches:
    """Makes, shows and cancels jobs, each tenant's own only."""

    def __init__(
        self,
        access: JobsAccess,
        keyring: Keyring,
        endpoints: Mapping[str, BatchEndpoint],
        backend: Backend,
    ) -> None:
        """Keep what every request needs.

        Args:
            access: The stores of jobs.
            keyring: Who may call.
            endpoints: What jobs may ask, by path.
            backend: Knows what each model stands for.
        """
        self._access = access
        self._keyring = keyring
        self._endpoints = endpoints
        self._backend = backend

    def routes(self) -> list[Route]:
        """Return the routes of the list, of one batch, and of its cancelling."""
        return [
            Route(BATCHES_PATH, self._collection, methods=["GET", "POST"]),
            Route(BATCH_PATH, self._one),
            Route(CANCEL_PATH, self._cancel, methods=["POST"]),
        ]

    async def _collection(self, request: Request) -> Response:
        caller = self._caller(request)
        if request.method == "POST":
            return await self._create(request, caller)
        paging = Paging.read(request, default=20, most=MOST_LISTED)
        jobs = await self._access.jobs()
        page = await jobs.jobs(caller.tenant, after=paging.after, limit=paging.limit)
        data = tuple(map(batch_object, page.rows))
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        listed = BatchList(data=data, first_id=first, last_id=last, has_more=page.has_more)
        return json_response(listed)

    async def _one(self, request: Request) -> Response:
        caller = self._caller(request)
        jobs = await self._access.jobs()
        return json_response(
            batch_object(await jobs.job(path_id(request, "batch_id"), caller.tenant))
        )

    async def _cancel(self, request: Request) -> Response:
        caller = self._caller(request)
        jobs = await self._access.jobs()
        return json_response(
            batch_object(await jobs.cancel(path_id(request, "batch_id"), caller.tenant))
        )

    async def _create(self, request: Request, caller: Caller) -> Response:
        headers: dict[bytes, bytes] = dict(request.scope["headers"])
        key = _idempotency_key(headers)
        body = await read_body(request.receive, headers, _MOST_BODY_BYTES)
        asked = _asked(body)
        endpoint = self._endpoint(asked.endpoint)
        caller.require_workload(endpoint.record.name)
        jobs = await self._access.jobs()
        digest = _digest(asked)
        job = None
        if key is not None:
            job = await jobs.made(caller.tenant, key, digest, asked.input_file_id)
        if job is None:
            new = await self._new_job(jobs, caller, asked, endpoint, key, digest)
            job = await jobs.create(new)
        return json_response(batch_object(job))

    async def _new_job(
        self,
        jobs: Jobs,
        caller: Caller,
        asked: BatchRequest,
        endpoint: BatchEndpoint,
        key: str | None,
        digest: str,
    ) -> NewJob:
        """Resolve the model that the input names, and ask for its job."""
        job_id = new_job_id()
        source, target = _source(asked), _target(asked)
        if source is not None and target is not None:
            first = await self._first_records(source, target, caller.tenant)
        else:
            first = await self._first_lines(jobs, asked.input_file_id or "", caller.tenant)
        async with aclosing(first) as lines:
            pinned = await pin(lines, endpoint, self._backend, job_id)
        if pinned.model is not None:
            caller.require_model(pinned.model)
        expires = asked.output_expires_after
        return NewJob(
            id=job_id,
            tenant=caller.tenant,
            endpoint=asked.endpoint,
            model=_storable(pinned.model),
            bundle=pinned.bundle,
            input_file_id=asked.input_file_id,
            source=source,
            target=target,
            window=asked.completion_window,
            window_s=_window_s(asked.completion_window),
            metadata=asked.metadata or {},
            output_expires_after_s=None if expires is None else float(expires.seconds),
            idempotency_key=key,
            body_sha256=digest,
        )

    async def _first_lines(self, jobs: Jobs, file_id: str, tenant: str) -> AsyncGenerator[bytes]:
        try:
            file = await jobs.file(file_id, tenant)
        except NotFound as error:
            raise InvalidRequest(error.message, param="input_file_id") from None
        return first_lines(self._access.objects, file.key)

    async def _first_records(
        self, source: Source, target: Target, tenant: str
    ) -> AsyncGenerator[bytes]:
        folder, entries = await open_source(self._access.roots, source, tenant)
        await require_new(self._access.roots, source, target, tenant)
        return first_records(folder, entries, source)

    def _endpoint(self, path: str) -> BatchEndpoint:
        found = self._endpoints.get(path)
        if found is None:
            known = ", ".join(sorted(self._endpoints))
            raise InvalidRequest(f"`endpoint` must be one of {known}.", param="endpoint")
        return found

    def _caller(self, request: Request) -> Caller:
        return self._keyring.authenticate(dict(request.scope["headers"]), BATCHES_PATH)


def _asked(body: bytes) -> BatchRequest:
    try:
        asked = BatchRequest.model_validate_json(body)
    except ValidationError as error:
        raise invalid_request(error, body) from None
    if _window_s(asked.completion_window) > _LONGEST_S:
        raise InvalidRequest("The window is longer than 30 days.", param="completion_window")
    name, known = _ON_INVALID_LINE
    if (asked.metadata or {}).get(name, known[0]) not in known:
        raise InvalidRequest(f"`{name}` must be one of {known}.", param=f"metadata.{name}")
    _require_one_input(asked)
    return asked


def _require_one_input(asked: BatchRequest) -> None:
    """Check that a batch reads a file, or a prefix and has a place for its results."""
    if (asked.input_file_id is None) == (asked.input is None):
        text = "Either `input_file_id` or `input` must be given."
        raise InvalidRequest(text, param="input_file_id" if asked.input is None else "input")
    if (asked.input is None) != (asked.output is None):
        text = "`output` goes with `input`, and is needed there."
        raise InvalidRequest(text, param="output")
    if asked.input is not None and asked.input.format != "parquet":
        for name in sorted(asked.input.model_fields_set & {"columns", "body", "id_column"}):
            raise InvalidRequest(f"`{name}` is for Parquet only.", param=f"input.{name}")


def _source(asked: BatchRequest) -> Source | None:
    given = asked.input
    if given is None:
        return None
    return Source(
        url=given.url,
        format=given.format,
        id_column=given.id_column,
        columns=given.columns or {},
        body=given.body or {},
    )


def _target(asked: BatchRequest) -> Target | None:
    given = asked.output
    return None if given is None else Target(url=given.url, format=given.format)


def _storable(model: str | None) -> str | None:
    """Return a name as databases can keep it; one that is changed by that is no model's."""
    if model is None:
        return None
    return model.encode(errors="replace").decode().replace("\x00", "?")


def _window_s(window: str) -> float:
    return int(window[:-1]) * _UNITS_S[window[-1]]


def _digest(asked: BatchRequest) -> str:
    """Return what tells whether a second request asks for the same, but for the file."""
    asked = asked.model_copy(update={"metadata": asked.metadata or None})
    document = json.dumps(asked.model_dump(mode="json", exclude={"input_file_id"}), sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()


def _idempotency_key(headers: Headers) -> str | None:
    given = headers.get(IDEMPOTENCY_KEY.encode())
    if given is None:
        return None
    if not _KEY.fullmatch(given):
        raise InvalidRequest(
            f"{IDEMPOTENCY_KEY} must be 1 to 255 visible ASCII characters.", param=IDEMPOTENCY_KEY
        )
    return given.decode()
