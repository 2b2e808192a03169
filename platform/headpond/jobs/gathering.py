"""Gathering: the objects below a prefix as one file of lines on this machine."""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from headpond.jobs.errors import ObjectLost
from headpond.jobs.job import Source
from headpond.jobs.objects import Entry, Objects
from headpond.jobs.parquet import UnreadableObject, lines_of
from headpond.jobs.pinning import first_lines

MOST_OBJECTS = 10_000

_BLOCK_BYTES = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """One object of the input, as it was read.

    Attributes:
        key: Its name below the prefix.
        bytes: Its size.
        etag: The store's own tag of its content, where it has one.
        sha256: Its digest, in hex.
        lines: How many lines, or rows, it has.
    """

    key: str
    bytes: int
    etag: str | None
    sha256: str
    lines: int


class Lineage:
    """Which line of the gathered file comes from where; of an uploaded file there is one."""

    def __init__(self, objects: Sequence[Gathered] = ()) -> None:
        """Take the objects in the order in which they were gathered."""
        self.objects = objects
        self._ends: list[int] = []
        for each in objects:
            self._ends.append((self._ends[-1] if self._ends else 0) + each.lines)

    def place(self, line: int) -> tuple[str | None, int]:
        """Return the object that has a line, and which of its lines it is, from 1."""
        if not self.objects:
            return None, line
        which = bisect_right(self._ends, line - 1)
        before = self._ends[which - 1] if which else 0
        return self.objects[which].key, line - before

    def document(self) -> list[dict[str, object]]:
        """Return the objects as a manifest lists them."""
        return [asdict(each) for each in self.objects]


async def gather(
    folder: Objects, entries: Sequence[Entry], source: Source, endpoint: str, path: Path
) -> Lineage:
    """Write the lines of all objects of a prefix into one file, in order.

    Raises:
        UnreadableObject: An object is not what its format says, or is gone.
        ObjectsUnavailable: The store failed for too long.
    """
    gathered = []
    part = path.with_name("object")
    for entry in entries:
        try:
            await folder.download(entry.key, part)
            found = await asyncio.to_thread(_append, entry, part, source, endpoint, path)
        except ObjectLost:
            raise UnreadableObject(f"`{entry.key}`: It is not there any more.") from None
        except UnreadableObject as error:
            raise UnreadableObject(f"`{entry.key}`: {error.message}") from None
        gathered.append(found)
    return Lineage(gathered)


async def first_records(
    folder: Objects, entries: Sequence[Entry], source: Source
) -> AsyncGenerator[bytes]:
    """Yield the first lines of the first object of a prefix that has any which can be read.

    Raises:
        ObjectsUnavailable: The store failed for too long.
    """
    for entry in entries:
        found = False
        try:
            async with aclosing(_firsts(folder, entry, source)) as lines:
                async for line in lines:
                    found = found or bool(line.strip())
                    yield line
        except (ObjectLost, UnreadableObject):
            return
        if found:
            return


async def _firsts(folder: Objects, entry: Entry, source: Source) -> AsyncGenerator[bytes]:
    """Yield the first lines of one object; of Parquet the first."""
    if source.format == "parquet":
        yield await folder.call_with(entry.key, lambda file: next(lines_of(file, source, ""), b""))
        return
    async with aclosing(first_lines(folder, entry.key)) as lines:
        async for line in lines:
            yield line


def _append(entry: Entry, part: Path, source: Source, endpoint: str, path: Path) -> Gathered:
    with part.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        size = content.tell()
    blocks = _rows(part, source, endpoint) if source.format == "parquet" else _blocks(part)
    lines = 0
    with path.open("ab") as file:
        for block in blocks:
            file.write(block)
            lines += block.count(b"\n")
    return Gathered(key=entry.key, bytes=size, etag=entry.etag, sha256=digest, lines=lines)


def _rows(part: Path, source: Source, endpoint: str) -> Iterator[bytes]:
    for line in lines_of(part, source, endpoint):
        yield line + b"\n"


def _blocks(part: Path) -> Iterator[bytes]:
    """Yield a file, and a newline where its last line has none."""
    block = b"\n"
    with part.open("rb") as file:
        while following := file.read(_BLOCK_BYTES):
            block = following
            yield block
    if not block.endswith(b"\n"):
        yield b"\n"
