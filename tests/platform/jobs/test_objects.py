"""The object store of jobs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flaky_files import FlakyFiles
from headpond.errors import NotFound
from headpond.jobs.errors import ObjectsUnavailable
from headpond.jobs.objects import Objects

CONTENT = bytes(range(256)) * 10_000  # several blocks


@pytest.fixture
def flaky() -> Iterator[type[FlakyFiles]]:
    FlakyFiles.reset()
    yield FlakyFiles
    FlakyFiles.reset()


async def whole(objects: Objects, key: str) -> bytes:
    return b"".join([block async for block in objects.read(key)])


@pytest.mark.parametrize("scheme", ["file", "memory"])
async def test_an_object_is_read_as_it_was_written(scheme: str, tmp_path: Path) -> None:
    objects = Objects(f"{scheme}://{tmp_path}/objects")
    local = tmp_path / "local"
    local.write_bytes(CONTENT)
    for source in (CONTENT, local):
        stored = await objects.put("a/b/c", source)
        assert (stored.bytes, stored.sha256) == (
            len(CONTENT),
            hashlib.sha256(CONTENT).hexdigest(),
        )
        assert await objects.get("a/b/c") == CONTENT
        assert await whole(objects, "a/b/c") == CONTENT
        await objects.download("a/b/c", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == CONTENT
        await objects.delete("a/b/c")
        await objects.delete("a/b/c")
        with pytest.raises(NotFound):
            await objects.get("a/b/c")
        with pytest.raises(NotFound):
            await whole(objects, "a/b/c")


async def test_a_store_that_errs_is_asked_again(tmp_path: Path, flaky: type[FlakyFiles]) -> None:
    objects = Objects(f"flaky://{tmp_path}/objects", patience_s=None)
    flaky.reset(error_share=0.2)
    for number in range(20):
        await objects.put(f"{number}", CONTENT)
        assert await whole(objects, f"{number}") == CONTENT
    assert flaky.errors > 5
    assert len(list((tmp_path / "objects").iterdir())) == 20  # no parts are left


async def test_a_full_disk_is_waited_for(tmp_path: Path, flaky: type[FlakyFiles]) -> None:
    objects = Objects(f"flaky://{tmp_path}/objects", patience_s=None)
    flaky.reset(full=True)
    put = asyncio.create_task(objects.put("a", CONTENT))
    while flaky.errors < 2:  # noqa: ASYNC110 - another thread counts
        await asyncio.sleep(0.01)
    assert not put.done()
    flaky.full = False
    await put
    assert await objects.get("a") == CONTENT


async def test_patience_ends(tmp_path: Path, flaky: type[FlakyFiles]) -> None:
    objects = Objects(f"flaky://{tmp_path}/objects", patience_s=0.2)
    flaky.reset(full=True)
    with pytest.raises(ObjectsUnavailable, match="No space left") as caught:
        await objects.put("a", CONTENT)
    assert caught.value.retryable
    assert not list((tmp_path / "objects").iterdir())
