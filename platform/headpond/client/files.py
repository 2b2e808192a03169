"""Files: uploaded and downloaded in blocks, never held as a whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Literal

from headpond.client.addresses import at, queried
from headpond.client.async_transport import AsyncTransport
from headpond.client.page import AsyncPage, Page
from headpond.client.transport import Transport
from headpond.client.upload import OnProgress, Source, Upload, opened
from headpond.jobs_wire import (
    CONTENT_PATH,
    FILE_PATH,
    FILES_PATH,
    FileDeleted,
    FileList,
    FileObject,
    Purpose,
)


def upload_fields(purpose: str, expires_after_s: int | None) -> dict[str, str | list[str]]:
    """Return the fields of an upload's form."""
    fields: dict[str, str | list[str]] = {"purpose": purpose}
    if expires_after_s is not None:
        fields |= {
            "expires_after[anchor]": "created_at",
            "expires_after[seconds]": str(expires_after_s),
        }
    return fields


class Files:
    """The files of a tenant: what batches read, and what they wrote."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    def create(
        self,
        file: Source,
        *,
        purpose: Purpose = "batch",
        filename: str | None = None,
        expires_after_s: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> FileObject:
        """Upload a file; it is read while it is sent.

        Args:
            file: A path, the content, or an open file that can be read again.
            purpose: `batch` for what batches read.
            filename: What the server calls it; the file's own name by default.
            expires_after_s: Seconds that it is kept, an hour to thirty days.
            on_progress: Told how many bytes were sent, and of how many.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        fields = upload_fields(purpose, expires_after_s)
        with opened(file, filename) as (source, name):
            upload = Upload(file=source, filename=name, fields=fields, on_progress=on_progress)
            return self._transport.post(FILES_PATH, upload, FileObject)

    def list(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: Literal["asc", "desc"] | None = None,
        purpose: str | None = None,
    ) -> Page[FileObject]:
        """Return a page of files, newest first; iterating goes on over all that follow.

        Args:
            after: The page begins behind this file.
            limit: The most on a page.
            order: `asc` for the oldest first.
            purpose: Only files of this purpose.
        """
        path = queried(FILES_PATH, after=after, limit=limit, order=order, purpose=purpose)
        return Page(
            self._transport.get(path, FileList),
            lambda last: self.list(after=last, limit=limit, order=order, purpose=purpose),
        )

    def retrieve(self, file_id: str) -> FileObject:
        """Return one file.

        Raises:
            NotFound: The tenant has no such file.
        """
        return self._transport.get(at(FILE_PATH, file_id), FileObject)

    def delete(self, file_id: str) -> FileDeleted:
        """Delete a file.

        Raises:
            NotFound: The tenant has no such file.
        """
        return self._transport.delete(at(FILE_PATH, file_id), FileDeleted)

    def content(self, file_id: str) -> Generator[bytes]:
        """Yield a file's content in blocks as they come.

        Raises:
            NotFound: The tenant has no such file.
        """
        return self._transport.content(at(CONTENT_PATH, file_id))


class AsyncFiles:
    """The files of a tenant: what batches read, and what they wrote."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    async def create(
        self,
        file: Source,
        *,
        purpose: Purpose = "batch",
        filename: str | None = None,
        expires_after_s: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> FileObject:
        """Upload a file; it is read while it is sent.

        Args:
            file: A path, the content, or an open file that can be read again.
            purpose: `batch` for what batches read.
            filename: What the server calls it; the file's own name by default.
            expires_after_s: Seconds that it is kept, an hour to thirty days.
            on_progress: Told how many bytes were sent, and of how many.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        fields = upload_fields(purpose, expires_after_s)
        with opened(file, filename) as (source, name):
            upload = Upload(file=source, filename=name, fields=fields, on_progress=on_progress)
            return await self._transport.post(FILES_PATH, upload, FileObject)

    async def list(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: Literal["asc", "desc"] | None = None,
        purpose: str | None = None,
    ) -> AsyncPage[FileObject]:
        """Return a page of files, newest first; iterating goes on over all that follow.

        Args:
            after: The page begins behind this file.
            limit: The most on a page.
            order: `asc` for the oldest first.
            purpose: Only files of this purpose.
        """
        path = queried(FILES_PATH, after=after, limit=limit, order=order, purpose=purpose)
        return AsyncPage(
            await self._transport.get(path, FileList),
            lambda last: self.list(after=last, limit=limit, order=order, purpose=purpose),
        )

    async def retrieve(self, file_id: str) -> FileObject:
        """Return one file.

        Raises:
            NotFound: The tenant has no such file.
        """
        return await self._transport.get(at(FILE_PATH, file_id), FileObject)

    async def delete(self, file_id: str) -> FileDeleted:
        """Delete a file.

        Raises:
            NotFound: The tenant has no such file.
        """
        return await self._transport.delete(at(FILE_PATH, file_id), FileDeleted)

    def content(self, file_id: str) -> AsyncGenerator[bytes]:
        """Yield a file's content in blocks as they come.

        Raises:
            NotFound: The tenant has no such file.
        """
        return self._transport.content(at(CONTENT_PATH, file_id))
