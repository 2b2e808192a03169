"""Batches on a running platform, as OpenAI's client meets them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import openai
import pytest

from batch_server import line, lines
from headpond import Client
from testbed import KEY, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NAMES = [f"r{number}" for number in range(200)]
LARGE_BYTES = 190 * 10**6


def test_a_batch_runs_to_its_end(platform: Platform) -> None:
    with Client(base_url=platform.base_url, api_key=KEY) as client:
        content = lines(*(line(name, name, model="echo") for name in NAMES))
        file = client.files.create(content, filename="in.jsonl")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/echo")
        batch = client.batches.wait(batch.id, timeout_s=120)
        assert batch.status == "completed"
        assert batch.bundle == platform.bundle_of("echo")
        found = {result.custom_id: result for result in client.batches.results(batch)}
        assert set(found) == set(NAMES)
        assert {json.dumps(result.error) for result in found.values()} == {"null"}


def test_a_large_file_is_never_held_by_the_router(platform: Platform, tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    block = os.urandom(10**6)
    with large.open("wb") as file:
        for _ in range(LARGE_BYTES // len(block)):
            file.write(block)
    url = f"{platform.base_url}/v1"
    (router,) = platform.replicas("router:Router")
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        client.files.content(client.files.create(file=b"{}", purpose="batch").id).read()
        before_bytes = peak_bytes(router.pid)
        with large.open("rb") as file:
            made = client.files.create(file=file, purpose="batch")
        with client.files.with_streaming_response.content(made.id) as streamed:
            assert sum(len(part) for part in streamed.iter_bytes(2**20)) == LARGE_BYTES
        assert peak_bytes(router.pid) - before_bytes < 64 * 2**20


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(
        int(text.split()[1]) * 1024 for text in status.splitlines() if text.startswith("VmHWM")
    )
