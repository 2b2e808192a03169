"""The object store of jobs: whole objects by key, over whatever fsspec opens."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar
from uuid import uuid4

import stamina
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from headpond.jobs.errors import ObjectLost, ObjectsUnavailable
from headpond.jobs.places import open_place

Result = TypeVar("Result")

_BLOCK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Stored:
    """An object that was written: its size, and its digest in hex."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An object that a store lists: its key, size, and the store's tag of its content, if any."""

    key: str
    bytes: int
    etag: str | None


class Objects:
    """Reads and writes objects; what is written is there as a whole, or not at all.

    Whatever fails is tried again with growing, jittered waits: a store that errs now and
    then, and a full disk, are waited for.
    """

    def __init__(self, url: str, *, patience_s: float | None = 10.0) -> None:
        """Use the store at an address.

        Args:
            url: A folder as fsspec knows it: `file:///var/lib/headpond`, `s3://bucket/prefix`.
            patience_s: So long one operation is repeated; None for ever.

        Raises:
            ImportError: A package is missing that reaches such a store.
        """
        place = open_place(url)
        self._files, self._root, self._errors = place.files, place.root, place.errors
        self._patience_s = patience_s
        self._local = isinstance(self._files, LocalFileSystem)

    async def put(self, key: str, source: bytes | Path) -> Stored:
        """Write an object from memory, or from a file on this machine.

        Args:
            key: Its name, with slashes; what it named before is replaced.
            source: The content; a file stays as it is until this returns.

        Raises:
            ObjectsUnavailable: The store failed for too long.
        """
        stored = await asyncio.to_thread(measured, source)
        await self._patiently(lambda: self._write(self._path(key), source))
        return stored

    async def get(self, key: str) -> bytes:
        """Return an object.

        Raises:
            ObjectLost: There is none.
            ObjectsUnavailable: The store failed for too long.
        """
        content: bytes = await self._patiently(lambda: self._files.cat_file(self._path(key)))
        return content

    async def download(self, key: str, path: Path) -> None:
        """Copy an object into a file on this machine.

        Raises:
            ObjectLost: There is none.
            ObjectsUnavailable: The store failed for too long.
        """

        def copy() -> None:
            # Some stores' `get_file` has all of it in memory.
            with self._files.open(self._path(key), "rb") as content, path.open("wb") as file:
                shutil.copyfileobj(content, file, _BLOCK_BYTES)

        await self._patiently(copy)

    async def read(self, key: str) -> AsyncGenerator[bytes]:
        """Iterate over an object's content, never all of it in memory.

        Raises:
            ObjectLost: There is none.
            ObjectsUnavailable: The store failed for too long.
        """
        reader = _Reader(lambda: self._files.open(self._path(key), "rb"), self._errors)
        try:
            while block := await self._patiently(reader.block):
                yield block
        finally:
            await asyncio.to_thread(reader.close)

    async def entries(self) -> list[Entry]:
        """Return all objects, sorted by key; none where there is no such place.

        Raises:
            ObjectsUnavailable: The store failed for too long.
        """
        return await self._patiently(self._listed)

    async def sha256(self, key: str) -> str | None:
        """Return the digest of an object's content, in hex; None where there is none.

        Raises:
            ObjectsUnavailable: The store failed for too long.
        """
        digest = hashlib.sha256()
        try:
            async with aclosing(self.read(key)) as blocks:
                async for block in blocks:
                    digest.update(block)
        except ObjectLost:
            return None
        return digest.hexdigest()

    async def call_with(self, key: str, use: Callable[[IO[bytes]], Result]) -> Result:
        """Open an object for reading at any place, and return what `use` makes of it.

        Raises:
            ObjectLost: There is none.
            ObjectsUnavailable: The store failed for too long.
        """

        def used() -> Result:
            with self._files.open(self._path(key), "rb") as file:
                return use(file)

        return await self._patiently(used)

    async def delete(self, key: str) -> None:
        """Delete an object; it is no error when there is none.

        Raises:
            ObjectsUnavailable: The store failed for too long.
        """
        with suppress(ObjectLost):
            await self._patiently(lambda: self._files.rm_file(self._path(key)))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _listed(self) -> list[Entry]:
        self._files.invalidate_cache()
        found = self._files.find(self._root, detail=True)
        root = f"{self._root.rstrip('/')}/"
        return [
            Entry(path.removeprefix(root), int(info["size"] or 0), _etag(info))
            for path, info in sorted(found.items())
            if path.startswith(root) and not path.endswith("/")
        ]

    def _write(self, path: str, source: bytes | Path) -> None:
        if not self._local:
            # One upload, which the store shows when it is complete.
            if isinstance(source, bytes):
                self._files.pipe_file(path, source)
            else:
                self._files.put_file(str(source), path)
            return
        self._files.makedirs(self._files._parent(path), exist_ok=True)  # noqa: SLF001
        part = f"{path}.{uuid4().hex}.part"
        try:
            with self._files.open(part, "wb") as file:
                _copy(source, file)
                file.flush()
                os.fsync(file.fileno())
            self._files.mv(part, path)
        except OSError:
            with suppress(OSError):
                self._files.rm_file(part)
            raise

    async def _patiently(self, operation: Callable[[], Result]) -> Result:
        try:
            async for attempt in stamina.retry_context(
                on=self._may_pass,
                attempts=None,
                timeout=self._patience_s,
                wait_initial=0.1,
                wait_max=5.0,
                wait_jitter=0.2,
            ):
                with attempt:
                    return await asyncio.to_thread(operation)
        except FileNotFoundError:
            raise ObjectLost("The object store has no such object.") from None
        except self._errors as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ObjectsUnavailable(
                f"The object store fails: {reason}.", retry_after_s=5.0
            ) from error
        raise ObjectsUnavailable

    def _may_pass(self, error: Exception) -> bool:
        return isinstance(error, self._errors) and not isinstance(error, FileNotFoundError)


class _Reader:
    """Reads on where it was when its file has to be opened again."""

    def __init__(
        self, open_file: Callable[[], IO[bytes]], errors: tuple[type[Exception], ...]
    ) -> None:
        self._open = open_file
        self._errors = errors
        self._file: IO[bytes] | None = None
        self._position = 0

    def block(self) -> bytes:
        try:
            if self._file is None:
                self._file = self._open()
                self._file.seek(self._position)
            block = self._file.read(_BLOCK_BYTES)
        except self._errors:
            self.close()
            raise
        self._position += len(block)
        return block

    def close(self) -> None:
        if self._file is not None:
            with suppress(*self._errors):
                self._file.close()
            self._file = None


def _etag(info: Mapping[str, object]) -> str | None:
    tag = info.get("ETag") or info.get("etag") or info.get("e_tag")
    return str(tag).strip('"') if tag else None


def measured(source: bytes | Path) -> Stored:
    """Return the size and the digest of what is to be stored."""
    if isinstance(source, bytes):
        return Stored(len(source), hashlib.sha256(source).hexdigest())
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Stored(file.tell(), digest.hexdigest())


def _copy(source: bytes | Path, file: IO[bytes]) -> None:
    if isinstance(source, bytes):
        file.write(source)
        return
    with source.open("rb") as content:
        shutil.copyfileobj(content, file, _BLOCK_BYTES)
