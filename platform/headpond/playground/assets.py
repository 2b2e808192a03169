"""Assets: the files of a web page, read from packages once and sent as they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Self

from headpond.errors import DeclarationError

_MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
    ".wav": "audio/wav",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file.

    Attributes:
        content: Its bytes.
        media_type: What they are.
        etag: Changes with them.
    """

    content: bytes
    media_type: str
    etag: str

    @classmethod
    def of(cls, content: bytes, media_type: str) -> Self:
        """Return a file with the etag of its bytes."""
        return cls(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def assets_of(package: str) -> Mapping[str, Asset]:
    """Return the files of a package's folder by their paths in it, those that browsers read.

    Raises:
        DeclarationError: There is no such package.
    """
    try:
        folder = files(package)
    except ImportError as error:
        raise DeclarationError(f"there is no package {package!r} to read files of") from error
    return {str(path): _read(file, path) for path, file in _walk(folder, PurePosixPath())}


def _walk(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, path / entry.name)
        elif PurePosixPath(entry.name).suffix in _MEDIA_TYPES:
            yield path / entry.name, entry


def _read(file: Traversable, path: PurePosixPath) -> Asset:
    return Asset.of(file.read_bytes(), _MEDIA_TYPES[path.suffix])
