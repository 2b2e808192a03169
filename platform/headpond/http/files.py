"""`/v1/files`: what batches read, and what they wrote; streamed in and out."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import structlog
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from headpond.errors import HeadpondError, InvalidRequest
from headpond.http.auth import Caller, Keyring
from headpond.http.errors import invalid_request
from headpond.http.listing import Paging, path_id
from headpond.http.responses import json_response
from headpond.http.upload import Upload, receive_upload
from headpond.jobs.access import JobsAccess
from headpond.jobs.job import NewFile, StoredFile
from headpond.jobs.store import BATCH_INPUT, new_file_id
from headpond.jobs_wire import (
    CONTENT_PATH,
    FILE_PATH,
    FILES_PATH,
    FileDeleted,
    FileList,
    FileObject,
    FileRequest,
)

MOST_LISTED = 10_000

_NESTED = "expires_after"
_INPUT_KEPT_S = 2_592_000.0
"""OpenAI keeps batches' inputs for thirty days, unless told otherwise."""

log = structlog.get_logger(__name__)


class ContentLost(Exception):
    """The object store failed in the middle of a download; the connection has to break."""


def file_object(file: StoredFile) -> FileObject:
    """Return a file as callers see it."""
    return FileObject(
        id=file.id,
        bytes=file.bytes,
        created_at=int(file.created_s),
        expires_at=None if file.expires_s is None else int(file.expires_s),
        filename=file.filename,
        purpose=file.purpose,
    )


class Files:
    """Takes in, shows and gives out files, each tenant's own only."""

    def __init__(self, access: JobsAccess, keyring: Keyring) -> None:
        self._access = access
        self._keyring = keyring

    def routes(self) -> list[Route]:
        """Return the routes of the list, of one file, and of its content."""
        return [
            Route(FILES_PATH, self._collection, methods=["GET", "POST"]),
            Route(CONTENT_PATH, self._content),
            Route(FILE_PATH, self._one, methods=["GET", "DELETE"]),
        ]

    async def _collection(self, request: Request) -> Response:
        caller = self._caller(request)
        if request.method == "POST":
            return await self._create(request, caller)
        return await self._list(request, caller)

    async def _one(self, request: Request) -> Response:
        caller = self._caller(request)
        file_id = path_id(request, "file_id")
        jobs = await self._access.jobs()
        if request.method != "DELETE":
            return json_response(file_object(await jobs.file(file_id, caller.tenant)))
        file = await jobs.delete_file(file_id, caller.tenant)
        await self._forget(file.key)
        return json_response(FileDeleted(id=file.id))

    async def _list(self, request: Request, caller: Caller) -> Response:
        paging = Paging.read(request, default=MOST_LISTED, most=MOST_LISTED)
        order = request.query_params.get("order", "desc")
        if order not in ("asc", "desc"):
            raise InvalidRequest("`order` must be asc or desc.", param="order")
        jobs = await self._access.jobs()
        page = await jobs.files(
            caller.tenant,
            purpose=_purpose(request),
            after=paging.after,
            limit=paging.limit,
            oldest_first=order == "asc",
        )
        data = tuple(map(file_object, page.rows))
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        listed = FileList(data=data, first_id=first, last_id=last, has_more=page.has_more)
        return json_response(listed)

    async def _create(self, request: Request, caller: Caller) -> Response:
        headers = dict(request.scope["headers"])
        limit_bytes = self._access.store.most_file_bytes
        jobs = await self._access.jobs()  # before 200 MB are sent for nothing
        with tempfile.TemporaryDirectory(prefix="headpond-upload-") as folder:
            path = Path(folder, "file")
            upload = await receive_upload(request.receive, headers, path, limit_bytes)
            asked = _asked(upload)
            file_id = new_file_id()
            key = f"files/{file_id}"
            stored = await self._access.objects.put(key, path)
        expires = None if asked.expires_after is None else float(asked.expires_after.seconds)
        if expires is None and asked.purpose == BATCH_INPUT:
            expires = _INPUT_KEPT_S
        new = NewFile(
            id=file_id,
            tenant=caller.tenant,
            purpose=asked.purpose,
            filename=upload.filename,
            bytes=stored.bytes,
            sha256=stored.sha256,
            key=key,
            expires_after_s=expires,
        )
        try:
            file = await jobs.add_file(new)
        except HeadpondError:
            await self._forget(key)
            raise
        return json_response(file_object(file))

    async def _content(self, request: Request) -> Response:
        caller = self._caller(request)
        jobs = await self._access.jobs()
        file = await jobs.file(path_id(request, "file_id"), caller.tenant)
        blocks = self._access.objects.read(file.key)
        first = await anext(blocks, b"")  # what fails before it is still an error status
        return StreamingResponse(
            _content(first, blocks),
            media_type="application/octet-stream",
            headers={
                "content-length": str(file.bytes),
                "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename)}",
                "etag": f'"{file.sha256}"',
            },
        )

    async def _forget(self, key: str) -> None:
        """Delete an object that no row names any more; one that stays only takes room."""
        try:
            await self._access.objects.delete(key)
        except HeadpondError as error:
            log.warning("object_left", key=key, problem=error.message)

    def _caller(self, request: Request) -> Caller:
        return self._keyring.authenticate(dict(request.scope["headers"]), FILES_PATH)


async def _content(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    try:
        async for block in rest:
            yield block
    except HeadpondError as error:
        raise ContentLost(error.message) from error


def _purpose(request: Request) -> str | None:
    purpose = request.query_params.get("purpose")
    if purpose is not None and not (purpose.isascii() and purpose.isprintable()):
        raise InvalidRequest("`purpose` must be one word.", param="purpose")
    return purpose


def _asked(upload: Upload) -> FileRequest:
    """Check the fields; `a[b]` is the field `b` of `a`, as OpenAI's clients write it.

    `expires_after` may be one field of JSON, too, as OpenAPI would have it.

    Raises:
        InvalidRequest: Names the field at fault.
    """
    fields: dict[str, object] = {}
    for name, text in upload.fields.items():
        outer, bracket, inner = name.removesuffix("]").partition("[")
        if bracket:
            nested = fields.setdefault(outer, {})
            if isinstance(nested, dict):
                nested[inner] = text
        else:
            fields[name] = _json(text) if name == _NESTED else text
    try:
        return FileRequest.model_validate(fields)
    except ValidationError as error:
        raise invalid_request(error, b"") from None


def _json(text: str) -> object:
    try:
        return from_json(text)
    except ValueError:
        return text
