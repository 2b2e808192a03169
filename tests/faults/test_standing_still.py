"""Processes and engines that stand still: others serve meanwhile, and somebody takes their place."""

from __future__ import annotations

import asyncio
import signal
import time

import httpx2
import pytest

from headpond.testing.stumbling import LACK_MEMORY, STAND_STILL
from testbed import KEY, TWINS, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

AUTH = {"authorization": f"Bearer {KEY}"}
PATH = "/v1/stumble"
SHORT = {"model": TWINS, "text": "hello"}
SLOW = {"model": TWINS, "text": "word " * 100, "chunks": 300}
LIMIT_S = 40
"""Of what has to be over in some 12 s on a machine that has nothing else to do."""


async def whole_again(platform: Platform, without: set[int]) -> None:
    """Wait until two replicas serve, and none of these."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            pids = {each.pid for each in platform.replicas(TWINS)}
            if len(pids - without) == 2 and not pids & without:
                break
            await asyncio.sleep(0.2)
    async with httpx2.AsyncClient(timeout=20, headers=AUTH) as client, asyncio.timeout(LIMIT_S):
        while (await client.post(platform.base_url + PATH, json=SHORT)).status_code != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def test_a_stopped_replica_costs_no_call_and_is_replaced(platform: Platform) -> None:
    async with httpx2.AsyncClient(
        base_url=platform.base_url, timeout=LIMIT_S, headers=AUTH
    ) as client:
        under_way = [asyncio.create_task(client.post(PATH, json=SLOW)) for _ in range(8)]
        await asyncio.sleep(0.5)
        victim, _ = platform.replicas(TWINS)
        victim.send_signal(signal.SIGSTOP)
        # They were with either; those that the victim had are sent to the other.
        answers = await asyncio.gather(*under_way)
        assert [answer.status_code for answer in answers] == [200] * 8
        assert {answer.json()["text"] for answer in answers} == {SLOW["text"]}
        # From here on it is known, and passed by.
        for _ in range(20):
            began_s = time.monotonic()
            answer = await client.post(PATH, json=SHORT)
            assert answer.status_code == 200, answer.text
            assert time.monotonic() - began_s < 5
        ready = await client.get("/readyz")
        assert ready.status_code == 200, ready.text
    await whole_again(platform, without={victim.pid})


async def test_a_stuck_engine_fails_what_it_is_stuck_in_and_takes_nobody_along(
    platform: Platform,
) -> None:
    before = {each.pid for each in platform.replicas(TWINS)}
    async with httpx2.AsyncClient(
        base_url=platform.base_url, timeout=LIMIT_S, headers=AUTH
    ) as client:
        answer = await client.post(PATH, json={"model": TWINS, "text": STAND_STILL})
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "engine_failed"
        for _ in range(20):
            status = (await client.post(PATH, json=SHORT)).status_code
            assert status in (200, 503)
            await asyncio.sleep(0.05)
    async with asyncio.timeout(LIMIT_S):
        while len(before & {each.pid for each in platform.replicas(TWINS)}) == 2:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    kept = before & {each.pid for each in platform.replicas(TWINS)}
    assert len(kept) == 1
    await whole_again(platform, without=before - kept)


async def test_a_lack_of_memory_is_one_calls_own(platform: Platform) -> None:
    before = [each.pid for each in platform.replicas(TWINS)]
    async with httpx2.AsyncClient(
        base_url=platform.base_url, timeout=LIMIT_S, headers=AUTH
    ) as client:
        beside = [asyncio.create_task(client.post(PATH, json=SLOW)) for _ in range(4)]
        await asyncio.sleep(0.2)
        answer = await client.post(PATH, json={"model": TWINS, "text": LACK_MEMORY})
        assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "true")
        assert [each.status_code for each in await asyncio.gather(*beside)] == [200] * 4
    assert [each.pid for each in platform.replicas(TWINS)] == before


async def test_calls_under_way_through_a_killed_router_end_and_can_be_sent_again(
    platform: Platform,
) -> None:
    async with httpx2.AsyncClient(
        base_url=platform.base_url, timeout=LIMIT_S, headers=AUTH
    ) as client:
        under_way = [asyncio.create_task(client.post(PATH, json=SLOW)) for _ in range(4)]
        await asyncio.sleep(0.5)
        (router,) = platform.replicas("router")
        router.kill()
        for ended in await asyncio.gather(*under_way, return_exceptions=True):
            # HAProxy closes a connection whose request went out over one that it had already.
            if not isinstance(ended, httpx2.RemoteProtocolError):
                assert isinstance(ended, httpx2.Response), ended
                assert ended.status_code == 502, ended.text
                assert ended.json()["error"]["code"] == "worker_lost"
                assert ended.headers["x-should-retry"] == "true"
        async with asyncio.timeout(LIMIT_S):
            while (answer := await client.post(PATH, json=SHORT)).status_code != 200:
                assert answer.status_code in (502, 503), answer.text
                assert answer.headers["x-should-retry"] == "true"
                await asyncio.sleep(0.2)
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
    (successor,) = platform.replicas("router")
    assert successor.pid != router.pid
