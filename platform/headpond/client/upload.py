"""A file on its way to the server: read while it is sent, from its start in each attempt."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK_BYTES = 2**18
OnProgress = Callable[[int, int], None]
"""Told how many bytes were sent, and of how many."""

Source = str | os.PathLike[str] | bytes | BinaryIO
"""A path, a file's content, or an open file that can be read again from its start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """What a form is made of.

    Attributes:
        file: Read from its start.
        filename: What the server calls it.
        fields: The form's other fields.
        on_progress: Told while the file is read.
    """

    file: BinaryIO
    filename: str
    fields: Mapping[str, str | list[str]]
    on_progress: OnProgress | None = None

    def files(self) -> dict[str, tuple[str, BinaryIO]]:
        """Return the file as HTTP clients take it, to be read from its start."""
        total_bytes = self.file.seek(0, io.SEEK_END)
        self.file.seek(0)
        told = _Told(self.file, total_bytes, self.on_progress)
        return {"file": (self.filename, io.BufferedReader(told, _BLOCK_BYTES))}


class _Told(io.RawIOBase):
    """A file that tells how far it was read."""

    def __init__(self, file: BinaryIO, total_bytes: int, on_progress: OnProgress | None) -> None:
        self._file = file
        self._total_bytes = total_bytes
        self._on_progress = on_progress

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        block = self._file.read(len(view))
        view[: len(block)] = block
        if self._on_progress is not None:
            self._on_progress(self._file.tell(), self._total_bytes)
        return len(block)


@contextmanager
def opened(source: Source, filename: str | None) -> Iterator[tuple[BinaryIO, str]]:
    """Open what is to be sent; files that were open stay so. Yields it and its name."""
    if isinstance(source, bytes):
        yield io.BytesIO(source), filename or "file"
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        with path.open("rb") as file:
            yield file, filename or path.name
    else:
        name = getattr(source, "name", "file")
        yield source, filename or (Path(name).name if isinstance(name, str) else "file")
