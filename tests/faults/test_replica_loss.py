"""A replica is killed while it streams: callers are told, and the platform comes back."""

from __future__ import annotations

import asyncio
import json
import re

import httpx2
import pytest

from testbed import KEY, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

AUTH = {"authorization": f"Bearer {KEY}"}
LONG = {"model": "echo", "text": "word " * 100, "chunks": 400, "stream": True}
SHORT = {"model": "echo", "text": "hello"}


async def read_until_end(client: httpx2.AsyncClient, url: str, started: asyncio.Event) -> str:
    """Return the last event's data of a long stream, or `broken` when it was cut."""
    last = ""
    try:
        async with client.stream("POST", url, json=LONG, headers=AUTH) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    started.set()
                    last = line.removeprefix("data: ")
    except httpx2.HTTPError:
        return "broken"
    return last


async def until_served(client: httpx2.AsyncClient, url: str) -> None:
    """Ask until an answer comes, and check that every refusal before was a proper one."""
    while True:
        answer = await client.post(url, json=SHORT, headers=AUTH)
        if answer.status_code == 200:
            assert answer.json()["text"] == "hello"
            return
        assert answer.status_code in (500, 502, 503)
        await asyncio.sleep(0.2)


async def test_streams_on_a_killed_replica_end_with_an_error_and_service_returns(
    platform: Platform,
) -> None:
    url = f"{platform.base_url}/v1/echo"
    async with httpx2.AsyncClient(timeout=60) as client:
        starts = [asyncio.Event() for _ in range(4)]
        streams = [asyncio.create_task(read_until_end(client, url, start)) for start in starts]
        await asyncio.gather(*(start.wait() for start in starts))
        (victim,) = platform.replicas("echo")
        victim.kill()
        for stream in streams:
            last = json.loads(await asyncio.wait_for(stream, timeout=30))
            assert last["error"]["code"] == "worker_lost"
        async with asyncio.timeout(120):
            await until_served(client, url)
            await until_served(client, f"{platform.direct('echo')}/v1/echo")
    (successor,) = platform.replicas("echo")
    assert successor.pid != victim.pid


@pytest.mark.parametrize("door", ["routed", "direct"])
async def test_a_dropped_stream_is_released(platform: Platform, door: str) -> None:
    base = platform.base_url if door == "routed" else platform.direct("echo")
    async with httpx2.AsyncClient(timeout=60) as client:
        async with asyncio.timeout(60):
            await until_served(client, f"{base}/v1/echo")
        async with client.stream(
            "POST", f"{base}/v1/echo", json={**LONG, "chunks": 4000}, headers=AUTH
        ) as answer:
            chunks = answer.aiter_bytes()  # dropped, it would close the stream
            first = await anext(chunks)
            assert answer.status_code == 200, first
            assert await running(client, platform) == 1, first
        async with asyncio.timeout(2):
            while await running(client, platform):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        assert await running(client, platform) == 0


async def running(client: httpx2.AsyncClient, platform: Platform) -> float:
    """Return how many items hold state on the echo replica."""
    answer = await client.get(f"{platform.direct('echo')}/metrics", headers=AUTH)
    (value,) = re.findall(r"^headpond_running\{.*\} ([\d.]+)$", answer.text, re.M)
    return float(value)
