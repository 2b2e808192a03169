"""Digests of files, remembered for as long as the files stay as they were."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

_WORTH_REMEMBERING_BYTES = 2**20
_SETTLED_S = 2.0
"""A file younger than this could change again within one tick of the file system's clock."""


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class HashMemo:
    """Remembers digests by path, size, inode and both of the file's change times.

    The change time of the inode can't be set back, so a file that was written to is always
    hashed again. A folder that can't be written only costs that.
    """

    def __init__(self, folder: Path) -> None:
        """Keep the memo in `folder`, one small file per remembered path."""
        self._folder = folder

    def sha256(self, path: Path, *, fresh: bool = False) -> str:
        """Return the digest of a file.

        Args:
            path: The file.
            fresh: Read the file whatever is remembered.
        """
        path = path.resolve()
        before = path.stat()
        state: list[str | int] = [str(path), before.st_dev, before.st_ino, before.st_size]
        state += [before.st_mtime_ns, before.st_ctime_ns]
        if before.st_size < _WORTH_REMEMBERING_BYTES:
            return file_sha256(path)
        note = self._folder / hashlib.sha256(bytes(path)).hexdigest()[:32]
        if not fresh and (known := _recall(note, state)) is not None:
            return known
        digest = file_sha256(path)
        if time.time() - max(before.st_mtime, before.st_ctime) > _SETTLED_S:
            with suppress(OSError):
                self._remember(note, state, digest)
        return digest

    def _remember(self, note: Path, state: list[str | int], digest: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = note.with_name(f"{note.name}.{uuid4().hex}")
        draft.write_text(json.dumps({"state": state, "sha256": digest}))
        draft.replace(note)


def _recall(note: Path, state: list[str | int]) -> str | None:
    try:
        remembered = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(remembered, dict) or remembered.get("state") != state:
        return None
    digest = remembered.get("sha256")
    return digest if isinstance(digest, str) else None
