"""A new version on a running platform: gated, tried, promoted, and taken back, under load."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from headpond.testing.echo import write_echo_bundle
from testbed import KEY, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

AUTH = {"authorization": f"Bearer {KEY}"}
SHORT = {"model": "echo", "text": "hello"}
STREAM = {"model": "echo", "text": "hello there", "chunks": 40, "stream": True}
REQUESTS = 1000


@dataclass
class Load:
    """What callers got while versions came and went."""

    outcomes: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)

    async def call(self, client: httpx2.AsyncClient, url: str, *, stream: bool) -> None:
        """Make one call and take note of how it ended."""
        body = STREAM if stream else SHORT
        try:
            async with client.stream("POST", url, json=body, headers=AUTH) as answer:
                lines = [line async for line in answer.aiter_lines()]
        except httpx2.HTTPError as error:
            self.outcomes[type(error).__name__] += 1
            return
        events = [line for line in lines if line.startswith("data: ")]
        whole = events[-1:] == ["data: [DONE]"] and len(events) == 41 if stream else bool(lines)
        self.outcomes["ok" if answer.status_code == 200 and whole else lines[-1]] += 1
        self.versions[answer.headers.get("x-headpond-bundle", "").partition("+")[0]] += 1


@asynccontextmanager
async def load(url: str, clients: int = 4) -> AsyncIterator[Load]:
    """Call all the while, every third time for a stream; to the end of at least 1,000 calls."""
    found, over = Load(), asyncio.Event()

    async def keep_calling(client: httpx2.AsyncClient, first: int) -> None:
        number = first
        while not over.is_set() or found.outcomes.total() < REQUESTS:
            await found.call(client, url, stream=number % 3 == 0)
            number += 1
            await asyncio.sleep(0.02)

    async with httpx2.AsyncClient(timeout=60) as client:
        tasks = [asyncio.create_task(keep_calling(client, at)) for at in range(clients)]
        try:
            yield found
        finally:
            over.set()
            await asyncio.gather(*tasks)


@dataclass(frozen=True)
class Command:
    """`headpond alias`, as its user sees it."""

    platform: Platform

    async def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command beside what else goes on here."""
        return await asyncio.to_thread(
            subprocess.run,
            [
                *(sys.executable, "-m", "headpond.cli", "alias", *args),
                *("--address", self.platform.ray_address),
            ],
            env={**os.environ, "RAY_AUTH_MODE": "token", "COLUMNS": "300"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    async def done(self, *args: str) -> str:
        """Run a command that has to go well, and return what it says."""
        ran = await self(*args)
        assert ran.returncode == 0, ran.stderr
        return ran.stderr + ran.stdout

    async def echo(self) -> dict[str, dict[str, object]]:
        """Return what is told of the alias `echo`."""
        listed = json.loads((await self("list", "--json")).stdout)["aliases"]
        found: dict[str, dict[str, object]] = next(e for e in listed if e["alias"] == "echo")
        return found


@pytest.fixture
async def command(platform: Platform) -> AsyncIterator[Command]:
    run = Command(platform)
    yield run
    await run("reset", "echo", "--remove")
    while platform.replicas("echo-"):  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.2)


async def test_a_version_whose_fixture_fails_never_gets_traffic(
    platform: Platform, command: Command, tmp_path: Path
) -> None:
    bundle = write_echo_bundle(tmp_path / "v2", name="echo", version="2.0.0")
    manifest = bundle / "bundle.yaml"
    manifest.write_text(manifest.read_text().replace("[he, llo]", "[hel, lo]"))
    ran = await command("set", "echo", "echo@2.0.0", "--bundle", str(bundle), "--canary", "50%")
    assert ran.returncode == 1
    assert "fixture 'greeting': pieces differs" in " ".join(ran.stderr.split())
    assert platform.replicas("echo-2-0-0") == []
    assert (await command.echo())["targets"] == {"echo": 1}


async def test_no_request_fails_while_a_version_comes_and_goes(
    platform: Platform, command: Command, tmp_path: Path
) -> None:
    bundle = write_echo_bundle(tmp_path / "v1", name="echo", version="1.1.0", step_ms=5)
    async with load(f"{platform.base_url}/v1/echo") as callers:
        said = await command.done(
            "set", "echo", "echo@1.1.0", "--bundle", str(bundle), "--canary", "20%"
        )
        assert "echo 80%, echo-1-1-0 20%" in said
        callers.versions.clear()
        await asyncio.sleep(3)
        assert 0 < callers.versions["echo@1.1.0"] < callers.versions["echo@1.0.0"]
        assert "echo-1-1-0 100%" in await command.done("promote", "echo")
        callers.versions.clear()
        await asyncio.sleep(1)
        assert set(callers.versions) == {"echo@1.1.0"}
        await command.done("rollback", "echo", "--remove")
        callers.versions.clear()
        await asyncio.sleep(1)
        assert set(callers.versions) == {"echo@1.0.0"}
    assert dict(callers.outcomes) == {"ok": callers.outcomes.total()}
    assert callers.outcomes.total() >= REQUESTS


@pytest.mark.long
async def test_a_slow_version_is_compared_and_then_taken_back(
    platform: Platform, command: Command, tmp_path: Path
) -> None:
    url = f"{platform.base_url}/v1/echo"
    bundle = write_echo_bundle(tmp_path / "slow", name="echo", version="1.2.0", step_ms=100)
    shadow = ["--shadow", "100%", "--guard", "none"]
    await command.done("set", "echo", "echo@1.2.0", "--bundle", str(bundle), *shadow)
    async with httpx2.AsyncClient(timeout=60) as client:
        callers = Load()
        for _ in range(5):
            await callers.call(client, url, stream=False)
        assert callers.versions == {"echo@1.0.0": 5}
        async with asyncio.timeout(30):
            while (await copies(command))["agreed"] == 0:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.5)
        guard = ["--guard", "ttft_p95=2x,min_requests=20"]
        await command.done("set", "echo", "echo@1.2.0", "--canary", "50%", *guard)
        for _ in range(10):
            await asyncio.gather(*(callers.call(client, url, stream=False) for _ in range(8)))
        async with asyncio.timeout(60):
            while (await command.echo())["revision"]["cause"] != "guard":  # noqa: ASYNC110
                await asyncio.sleep(1)
        found = await command.echo()
        assert re.match(r"ttft_p95: .* s is allowed", str(found["revision"]["reason"]))
        assert found["targets"] == {"echo": 1}
        metrics = await client.get(f"{platform.base_url}/metrics", headers=AUTH)
        assert re.search(r'headpond_canary_rollbacks_total\{alias="echo".*\} [1-9]', metrics.text)
    assert dict(callers.outcomes) == {"ok": callers.outcomes.total()}
    assert "echo-1-2-0: removed" in await command.done("remove", "echo-1-2-0")


@pytest.mark.parametrize("stream", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_a_model_without_replicas_serves_its_first_request(
    platform: Platform, *, stream: bool
) -> None:
    async with asyncio.timeout(90):
        while platform.replicas("nap"):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.5)
    ready = httpx2.get(f"{platform.base_url}/readyz", timeout=10)
    assert "nap" not in ready.json()["not_ready"]
    body = {**(STREAM if stream else SHORT), "model": "nap"}
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{platform.base_url}/v1/echo", json=body, headers=AUTH)
    assert answer.status_code == 200, answer.text
    assert len(platform.replicas("nap")) == 1


async def copies(command: Command) -> dict[str, int]:
    """Return what is told of the copies of calls."""
    seen = (await command.echo())["seen"]
    found = seen["copies"]
    assert isinstance(found, dict)
    return found
