"""Remembered digests: used while a file is as it was, and never after a change."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from headpond.bundle import hashing
from headpond.bundle.hashing import HashMemo

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the files that are read from now on; every file counts as settled."""
    read: list[Path] = []
    plain = hashing.file_sha256

    def counted(path: Path) -> str:
        read.append(path)
        return plain(path)

    monkeypatch.setattr(hashing, "file_sha256", counted)
    monkeypatch.setattr(hashing, "_SETTLED_S", -1e12)
    return read


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(CONTENT)
    return path


def rewrite_keeping_times(path: Path, content: bytes) -> None:
    """Change the content of a file but not its size, inode or modification time."""
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_an_unchanged_file_is_read_once(tmp_path: Path, large: Path, reads: list[Path]) -> None:
    for _ in range(3):
        digest = HashMemo(tmp_path / "memo").sha256(large)
        assert digest == hashlib.sha256(CONTENT).hexdigest()
    assert len(reads) == 1


def test_a_file_is_read_again_when_asked(tmp_path: Path, large: Path, reads: list[Path]) -> None:
    memo = HashMemo(tmp_path / "memo")
    memo.sha256(large)
    memo.sha256(large, fresh=True)
    assert len(reads) == 2


def test_a_change_that_hides_its_time_is_seen(
    tmp_path: Path, large: Path, reads: list[Path]
) -> None:
    memo = HashMemo(tmp_path / "memo")
    memo.sha256(large)
    changed = b"\x01" + CONTENT[1:]
    rewrite_keeping_times(large, changed)
    assert memo.sha256(large) == hashlib.sha256(changed).hexdigest()
    assert len(reads) == 2


def test_a_file_that_may_still_change_is_not_remembered(
    tmp_path: Path, large: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "_SETTLED_S", 1e12)
    memo = HashMemo(tmp_path / "memo")
    memo.sha256(large)
    memo.sha256(large)
    assert len(reads) == 2


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"state": 1}', b"\xff"])
def test_a_damaged_memory_costs_reading_only(
    tmp_path: Path, large: Path, reads: list[Path], damage: bytes
) -> None:
    memo = HashMemo(tmp_path / "memo")
    memo.sha256(large)
    [note] = (tmp_path / "memo").iterdir()
    note.write_bytes(damage)
    assert memo.sha256(large) == hashlib.sha256(CONTENT).hexdigest()
    assert len(reads) == 2


def test_a_memory_that_cannot_be_written_costs_reading_only(
    tmp_path: Path, large: Path, reads: list[Path]
) -> None:
    (tmp_path / "memo").write_text("a file where the folder should be")
    memo = HashMemo(tmp_path / "memo")
    assert memo.sha256(large) == memo.sha256(large) == hashlib.sha256(CONTENT).hexdigest()
    assert len(reads) == 2
