"""Qdrant as a sink: its own client in local mode, and servers that fail."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient
from qdrant_client.models import Distance, VectorParams

from headpond.errors import BundleError, HeadpondError, InvalidRequest, StoreUnavailable
from headpond.ray_env import free_port
from headpond.sink import Point, PointId, SinkSettings, collection_of, open_sink
from headpond.sink_qdrant import QdrantSink

UUID = "6fa459ea-ee8a-3ca4-894e-db77e160355e"


@pytest.fixture
async def client() -> AsyncIterator[AsyncQdrantClient]:
    client = AsyncQdrantClient(":memory:")
    yield client
    await client.close()


def point(point_id: PointId, *values: float, **payload: str) -> Point:
    return Point(point_id=point_id, vector=array("f", values), payload=payload)


async def stored(client: AsyncQdrantClient, name: str) -> dict[PointId, tuple[object, object]]:
    records, _ = await client.scroll(name, limit=10_000, with_vectors=True)
    return {
        each.id: (each.vector, each.payload) for each in records if isinstance(each.id, int | str)
    }


async def test_points_are_there_under_their_names(client: AsyncQdrantClient) -> None:
    sink = QdrantSink(client)
    await sink.write("one", "docs", [point(7, 0.6, 0.8, text="a"), point(UUID, 0.0, 1.0)])
    found = await stored(client, "one.docs")
    assert found[7][0] == pytest.approx([0.6, 0.8])
    assert found[7][1] == {"text": "a"}
    assert found[UUID] == ([0.0, 1.0], {})


async def test_a_retry_replaces_and_adds_nothing(client: AsyncQdrantClient) -> None:
    sink = QdrantSink(client, Distance.DOT)
    for vector in ((1.0, 2.0), (1.0, 2.0), (3.0, 4.0)):
        await sink.write("one", "docs", [point(1, *vector, step=str(vector))])
    assert await stored(client, "one.docs") == {1: ([3.0, 4.0], {"step": "(3.0, 4.0)"})}


async def test_many_points_are_all_stored(client: AsyncQdrantClient) -> None:
    points = [point(at, *([float(at)] * 300)) for at in range(200)]
    await QdrantSink(client, Distance.DOT).write("one", "docs", points)
    found = await stored(client, "one.docs")
    assert {at: vector for at, (vector, _) in found.items()} == {
        at: [float(at)] * 300 for at in range(200)
    }


async def test_tenants_have_collections_of_their_own(client: AsyncQdrantClient) -> None:
    sink = QdrantSink(client, Distance.DOT)
    await sink.write("one", "docs", [point(1, 1.0)])
    await sink.write("two", "docs", [point(1, 2.0)])
    assert (await stored(client, "one.docs"))[1][0] == [1.0]
    assert (await stored(client, "two.docs"))[1][0] == [2.0]


@given(
    names=st.lists(
        st.tuples(
            st.text(min_size=1, max_size=4), st.from_regex(r"[A-Za-z0-9_-]{1,3}", fullmatch=True)
        ),
        unique=True,
        min_size=2,
        max_size=2,
    )
)
def test_no_tenant_names_the_collection_of_another(names: list[tuple[str, str]]) -> None:
    first, second = (collection_of(*name) for name in names)
    assert first != second
    assert not set(first) & set('<>:"/\\|?*%# ')


@pytest.mark.parametrize(
    "vectors",
    [
        VectorParams(size=3, distance=Distance.DOT),
        {"title": VectorParams(size=2, distance=Distance.DOT)},
    ],
)
async def test_a_collection_that_takes_no_such_vectors(
    client: AsyncQdrantClient, vectors: VectorParams | dict[str, VectorParams]
) -> None:
    await client.create_collection("one.docs", vectors_config=vectors)
    with pytest.raises(InvalidRequest) as refused:
        await QdrantSink(client).write("one", "docs", [point(1, 1.0, 2.0)])
    assert refused.value.param == "store.collection"
    assert await stored(client, "one.docs") == {}


async def test_an_existing_collection_keeps_its_distance(client: AsyncQdrantClient) -> None:
    await client.create_collection(
        "one.docs", vectors_config=VectorParams(size=2, distance=Distance.DOT)
    )
    await QdrantSink(client, Distance.COSINE).write("one", "docs", [point(1, 3.0, 4.0)])
    assert (await stored(client, "one.docs"))[1][0] == [3.0, 4.0]


async def test_a_store_that_is_down_is_unavailable() -> None:
    sink = open_sink(SinkSettings(url=f"qdrant+http://127.0.0.1:{free_port()}"))
    with pytest.raises(StoreUnavailable) as failed:
        await sink.write("one", "docs", [point(1, 1.0)])
    assert failed.value.retryable
    await sink.close()


Handler = Callable[[httpx.Request], httpx.Response]


def server(on_upsert: Handler, seen: list[httpx.Request]) -> QdrantSink:
    """Return a sink over a server that makes collections, and answers upserts as told."""
    collection = {
        "status": "green",
        "optimizer_status": "ok",
        "segments_count": 1,
        "config": {
            "params": {"vectors": {"size": 1, "distance": "Dot"}},
            "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10},
            "optimizer_config": {
                "deleted_threshold": 0.2,
                "vacuum_min_vector_number": 1,
                "default_segment_number": 0,
                "flush_interval_sec": 5,
            },
        },
        "payload_schema": {},
    }

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.url.path.endswith("/points"):
            return on_upsert(request)
        if request.url.path.endswith("/exists"):
            return httpx.Response(200, json={"result": {"exists": False}})
        if request.method == "PUT":  # another call made it meanwhile
            return httpx.Response(409, json={"status": {"error": "already exists"}})
        return httpx.Response(200, json={"result": collection})

    client = AsyncQdrantClient(
        url="http://qdrant:6333",
        api_key=None,
        check_compatibility=False,
        transport=httpx.MockTransport(answer),
    )
    return QdrantSink(client)


def told(status: str) -> Handler:
    return lambda _: httpx.Response(200, json={"result": {"operation_id": 1, "status": status}})


def failing(status: int, **headers: str) -> Handler:
    return lambda _: httpx.Response(status, json={"status": {"error": "no"}}, headers=headers)


async def test_writes_are_waited_for() -> None:
    seen: list[httpx.Request] = []
    sink = server(told("completed"), seen)
    await sink.write("a/b", "docs", [point(2**64 - 1, 0.1)])
    await sink.close()
    assert seen[-1].url.path == "/collections/a=2fb.docs/points"
    assert seen[-1].url.params["wait"] == "true"
    (sent,) = json.loads(seen[-1].content)["points"]
    assert sent["id"] == 2**64 - 1
    assert array("f", sent["vector"]) == array("f", [0.1])


@pytest.mark.parametrize(
    ("on_upsert", "raised"),
    [
        (told("acknowledged"), StoreUnavailable),
        (told("wait_timeout"), StoreUnavailable),
        (failing(400), InvalidRequest),
        (failing(413), InvalidRequest),
        (failing(401), StoreUnavailable),
        (failing(404), StoreUnavailable),
        (failing(429), StoreUnavailable),
        (failing(429, **{"retry-after": "1"}), StoreUnavailable),
        (failing(500), StoreUnavailable),
        (lambda _: httpx.Response(200, content=b"<html>"), StoreUnavailable),
    ],
    ids=[
        "not_applied",
        "timed_out",
        "bad_request",
        "too_large",
        "bad_key",
        "collection_gone",
        "rate_limited",
        "rate_limited_with_a_time",
        "server_error",
        "no_json",
    ],
)
async def test_what_a_server_fails_with(on_upsert: Handler, raised: type[HeadpondError]) -> None:
    sink = server(on_upsert, [])
    with pytest.raises(raised):
        await sink.write("one", "docs", [point(1, 1.0)])
    await sink.close()


async def test_concurrent_first_writes(client: AsyncQdrantClient) -> None:
    sink = QdrantSink(client, Distance.DOT)
    await asyncio.gather(*(sink.write("one", "docs", [point(at, 1.0)]) for at in range(8)))
    assert sorted(await stored(client, "one.docs"), key=str) == list(range(8))


@pytest.mark.parametrize(
    "url",
    [
        "http://qdrant:6333",
        "qdrant+http://",
        "qdrant+http://user:key@qdrant",
        "qdrant+http://q?x=1",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ValidationError):
        SinkSettings(url=url)


def test_a_key_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QDRANT_TEST_KEY", raising=False)
    with pytest.raises(BundleError, match="QDRANT_TEST_KEY"):
        open_sink(SinkSettings(url="qdrant+http://qdrant:6333", api_key_env="QDRANT_TEST_KEY"))
