"""Places that have objects, by URL: folders of this machine, S3, and what else fsspec opens."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from fsspec import get_filesystem_class  # type: ignore[import-untyped]
from fsspec.core import url_to_fs  # type: ignore[import-untyped]
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

_S3 = "s3"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of a store.

    Attributes:
        files: Reaches it.
        root: The folder, as `files` calls it.
        errors: How `files` fails; `FileNotFoundError` is among them.
    """

    files: AbstractFileSystem
    root: str
    errors: tuple[type[Exception], ...]


def open_place(url: str) -> Place:
    """Return the place at a URL; nothing is asked of it yet.

    Raises:
        ImportError: A package is missing that reaches such a store.
    """
    scheme, _, path = url.partition("://")
    if scheme != _S3:
        files, root = url_to_fs(url)
        return Place(files, root, (OSError,))
    require_scheme(_S3)
    s3 = import_module("headpond.jobs.s3")
    return Place(s3.S3Files.impatient(), path.rstrip("/"), (OSError, s3.S3Error))


def require_scheme(scheme: str) -> None:
    """Check that stores of a scheme can be reached here.

    Raises:
        ImportError: A package is missing.
        ValueError: There are no such stores.
    """
    if scheme != _S3:
        get_filesystem_class(scheme)
        return
    try:
        import_module("obstore")
    except ImportError:
        raise ImportError("`s3://` needs `headpond[s3]`, which is not installed.") from None
