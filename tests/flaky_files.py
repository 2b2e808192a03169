"""A file system that errs: a share of its calls, or all of them while the disk is full."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import IO

import fsspec  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]


class FlakyFiles(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The machine's own files, behind a store that errs; reached as `flaky://`."""

    protocol = "flaky"
    cachable = False
    error_share = 0.0
    full = False
    full_while: Path | None = None
    """The disk is full while there is such a file: for processes that can't be told."""
    calls = 0
    errors = 0
    dice = random.Random(7)  # noqa: S311 - the same in every run

    @classmethod
    def reset(cls, *, error_share: float = 0.0, full: bool = False) -> None:
        cls.error_share, cls.full = error_share, full
        cls.calls = cls.errors = 0
        cls.dice = random.Random(7)  # noqa: S311 - the same in every run

    def _open(self, path: str, mode: str = "rb", **options: object) -> IO[bytes]:
        self._err(writes="w" in mode)
        file: IO[bytes] = super()._open(path, mode, **options)
        return file

    def mv(self, path1: str, path2: str, **options: object) -> None:
        self._err(writes=True)
        super().mv(path1, path2, **options)

    def _err(self, *, writes: bool) -> None:
        cls = type(self)
        cls.calls += 1
        marked = cls.full_while is not None and cls.full_while.exists()
        if writes and (cls.full or marked):
            cls.errors += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.dice.random() < cls.error_share:
            cls.errors += 1
            raise OSError(errno.EIO, "The store errs")


fsspec.register_implementation("flaky", FlakyFiles, clobber=True)
