"""S3 as the object store of jobs, and as the place of their inputs and results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from batches import Mill, as_jsonl, echo_line, require_exactly_once
from headpond.errors import NotFound
from headpond.jobs.errors import ObjectsUnavailable
from headpond.jobs.job import JobStatus, Source, Target
from headpond.jobs.objects import Objects
from headpond.jobs.roots import Roots, checked_root
from headpond.ray_env import free_port

CONTENT = os.urandom(2**20) * 12  # several parts of an upload, and several blocks
NAMES = [f"r{number}" for number in range(20)]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a server that speaks S3, and return its address."""
    weed = Path(sys.executable).with_name("weed")
    folder = tmp_path_factory.mktemp("s3")
    ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
    grpc = {f"{name}.port.grpc": free_port() for name in ports}
    given = {f"{name}.port": port for name, port in ports.items()} | grpc
    command = [
        *(str(weed), "-logtostderr=true", "server", "-s3", f"-dir={folder}", "-ip=127.0.0.1"),
        *("-master.telemetry=false", "-master.volumeSizeLimitMB=64"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-{name}={port}" for name, port in given.items()),
    ]
    url = f"http://127.0.0.1:{ports['s3']}"
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,
    ):
        try:
            _make_bucket(f"{url}/mill")
            yield url
        finally:
            server.kill()


def _make_bucket(url: str) -> None:
    """Make a bucket, as soon as the server can."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        try:
            if httpx2.put(url).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError


@pytest.fixture
def prefix(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a prefix of this test's own."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    return f"s3://mill/{uuid4().hex}"


async def whole(objects: Objects, key: str) -> bytes:
    return b"".join([block async for block in objects.read(key)])


async def test_an_object_is_read_as_it_was_written(prefix: str, tmp_path: Path) -> None:
    objects = Objects(prefix)
    local = tmp_path / "local"
    local.write_bytes(CONTENT)
    assert await objects.entries() == []
    for source in (CONTENT, local):
        stored = await objects.put("a/b/c", source)
        assert stored.bytes == len(CONTENT)
        assert await objects.get("a/b/c") == CONTENT
        assert await whole(objects, "a/b/c") == CONTENT
        assert await objects.sha256("a/b/c") == stored.sha256
        await objects.download("a/b/c", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == CONTENT
        (entry,) = await objects.entries()
        assert (entry.key, entry.bytes) == ("a/b/c", len(CONTENT))
        assert entry.etag
        await objects.delete("a/b/c")
        await objects.delete("a/b/c")
        for gone in (objects.get("a/b/c"), whole(objects, "a/b/c")):
            with pytest.raises(NotFound):
                await gone
        with pytest.raises(NotFound):
            await objects.download("a/b/c", tmp_path / "copy")


async def test_a_server_that_is_away_is_no_missing_object(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    objects = Objects(prefix, patience_s=0.2)
    for asked in (objects.get("a"), whole(objects, "a"), objects.put("a", b""), objects.entries()):
        with pytest.raises(ObjectsUnavailable):
            await asked


async def test_a_job_runs_in_s3(mill: Mill, prefix: str) -> None:
    mill.objects = Objects(prefix)
    job = await mill.submit(as_jsonl([echo_line(name) for name in NAMES]))
    await mill.drain()
    assert (await mill.job(job)).status is JobStatus.COMPLETED
    await require_exactly_once(mill, job, NAMES)
    left = {entry.key.partition("/")[0] for entry in await mill.objects.entries()}
    assert left == {"files", "jobs"}


async def test_a_job_reads_and_writes_prefixes_of_s3(mill: Mill, prefix: str) -> None:
    mill.roots = Roots([checked_root(prefix)])
    read, written = Objects(f"{prefix}/in"), Objects(f"{prefix}/out")
    await read.put("day/a.jsonl", as_jsonl([echo_line(name) for name in NAMES]))
    job = await mill.submit_prefix(Source(url=f"{prefix}/in"), Target(url=f"{prefix}/out"))
    await mill.drain()
    now = await mill.job(job)
    assert (now.status, now.manifest_key) == (JobStatus.COMPLETED, f"{prefix}/out/manifest.json")
    manifest = json.loads(await written.get("manifest.json"))
    assert [each["key"] for each in manifest["input"]["objects"]] == ["day/a.jsonl"]
    (part,) = manifest["output"]
    lines = (await written.get(part["name"])).splitlines()
    assert {json.loads(line)["custom_id"] for line in lines} == set(NAMES)
    assert await written.sha256(part["name"]) == part["sha256"]
