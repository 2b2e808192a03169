"""Vectors that go to a vector store: the request's field, and a whole call."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from qdrant_client import AsyncQdrantClient
from qdrant_client.models import Distance

from exchanges import MODEL, app_over, post, read, scripted
from headpond.backend import LocalBackend
from headpond.engine import EngineSettings
from headpond.errors import InvalidRequest
from headpond.http.app import ASGIApp, build_app
from headpond.ray_env import free_port
from headpond.scheduling.loop import loop_for
from headpond.scheduling.write_through import WriteThrough
from headpond.settings import Settings
from headpond.sink import Placement, Sink
from headpond.sink_qdrant import QdrantSink
from headpond.telemetry.metrics import Metrics
from headpond.telemetry.report import CallReport
from headpond_workloads.embedding.engine.load import load
from headpond_workloads.embedding.record import record
from headpond_workloads.embedding.store import vector
from workloads.encoders.tiny import Tiny, save_tiny

PATH = "/v1/embeddings"
UUID = "6fa459ea-ee8a-3ca4-894e-db77e160355e"
TWO = ["The water mill.", "a"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


def float32(given: object) -> array[float]:
    assert isinstance(given, list)
    return array("f", given)


@asynccontextmanager
async def served(tiny: Tiny, sink: Sink | None) -> AsyncIterator[tuple[ASGIApp, list[CallReport]]]:
    """Serve a tiny model as a replica does, and yield what it reports of calls."""
    manifest = tiny.bundle.manifest
    engine = load(tiny.bundle, EngineSettings(state_bytes=2**24))
    reports: list[CallReport] = []
    writes = None
    if sink is not None:
        writes = WriteThrough(sink, vector, timeout_s=5.0, max_points=4)
    loop = loop_for(
        record,
        engine,
        record.bind(engine.symbols, manifest.execution.dtype),
        state_bytes=2**24,
        bundle=manifest.ref,
        observer=reports.append,
        writes=writes,
    )
    metrics = Metrics(record, bundle=manifest.ref, model=MODEL)
    backend = LocalBackend(
        record=record, manifest=manifest, alias=MODEL, loop=loop, metrics_source=metrics
    )
    loop.start()
    try:
        yield build_app([record], backend, Settings()), reports
    finally:
        await loop.stop(5.0)


async def test_stored_vectors_are_the_answers(tiny: Tiny) -> None:
    client = AsyncQdrantClient(":memory:")
    store = {"collection": "docs", "ids": [3, UUID], "payloads": [{"text": "mill"}, {}]}
    async with served(tiny, QdrantSink(client, Distance.DOT)) as (app, reports):
        status, body = await post(app, PATH, model=MODEL, input=TWO, store=store)
        assert status == 200
        found = await client.retrieve("public.docs", [3, UUID], with_vectors=True)
        assert {each.id: float32(each.vector) for each in found} == {
            3: float32(body["data"][0]["embedding"]),
            UUID: float32(body["data"][1]["embedding"]),
        }
        assert {each.id: each.payload for each in found} == {3: {"text": "mill"}, UUID: {}}
        assert await post(app, PATH, model=MODEL, input=TWO) == (200, body)
        assert [report.outcome for report in reports] == ["ok", "ok"]


async def test_a_store_that_is_down(tiny: Tiny) -> None:
    sink = QdrantSink(
        AsyncQdrantClient(url=f"http://127.0.0.1:{free_port()}", check_compatibility=False)
    )
    store = {"collection": "docs", "ids": [1, 2]}
    async with served(tiny, sink) as (app, reports):
        status, body = await post(app, PATH, model=MODEL, input=TWO, store=store)
        assert (status, body["error"]["code"]) == (503, "store_unavailable")
        assert [report.outcome for report in reports] == ["store_unavailable"]


async def test_more_than_is_ever_stored(tiny: Tiny) -> None:
    async with served(tiny, QdrantSink(AsyncQdrantClient(":memory:"))) as (app, _):
        store = {"collection": "docs", "ids": [*range(5)]}
        status, body = await post(app, PATH, model=MODEL, input=["a"] * 5, store=store)
    assert (status, body["error"]["param"]) == (400, "store")


async def test_without_a_store(tiny: Tiny) -> None:
    async with served(tiny, None) as (app, _):
        store = {"collection": "docs", "ids": [1]}
        status, body = await post(app, PATH, model=MODEL, input="a", store=store)
    assert (status, body["error"]["param"]) == (400, "store")


def test_coheres_dialect_stores_too() -> None:
    store = {"collection": "docs", "ids": [0, UUID]}
    ask = read(record, "/v2/embed", model="m", texts=TWO, store=store).ask()
    assert ask.store == Placement(collection="docs", ids=(0, UUID))
    with pytest.raises(InvalidRequest) as refused:
        read(record, "/v2/embed", model="m", texts=["a"], store=store).ask()
    assert refused.value.param == "store.ids"


async def test_more_token_vectors_than_an_answer_holds(tiny: Tiny) -> None:
    async with served(tiny, None) as (app, reports):
        inputs = [[7] * 100] * 2048
        status, body = await post(app, "/embed_all", inputs=inputs, truncate=True)
        assert (status, body["error_type"]) == (413, "Validation")
        assert "values of all items" in body["error"]
        status, _ = await post(app, "/embed_all", inputs=inputs[:1], truncate=True)
        assert status == 200
    assert [report.outcome for report in reports] == ["request_too_large", "ok"]


def test_where_the_vectors_go() -> None:
    store = {"collection": "docs", "ids": [0, UUID.upper()], "payloads": [{"a": [1, None]}, {}]}
    ask = read(record, PATH, model="m", input=TWO, store=store).ask()
    assert ask.store == Placement(collection="docs", ids=(0, UUID), payloads=({"a": [1, None]}, {}))
    assert read(record, PATH, model="m", input="a", store=None).ask().store is None


@pytest.mark.parametrize(
    ("store", "param"),
    [
        ({"ids": [1]}, "store.ids"),
        ({"ids": [1, 2, 3]}, "store.ids"),
        ({"ids": []}, "store.ids"),
        ({"ids": [1, 1]}, "store.ids"),
        ({"ids": [UUID, UUID.upper()]}, "store.ids"),
        ({"ids": [1, 2], "payloads": [{}]}, "store.payloads"),
        ({"ids": [1, 2], "payloads": []}, "store.payloads"),
        ({"ids": [1, 2], "payloads": [{}, {"a": float("nan")}]}, "store.payloads"),
    ],
)
def test_a_store_that_does_not_fit_the_texts(store: dict[str, object], param: str) -> None:
    exchange = read(record, PATH, model="m", input=TWO, store={"collection": "docs", **store})
    with pytest.raises(InvalidRequest) as refused:
        exchange.ask()
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("store", "param"),
    [
        ({"ids": [1]}, "store.collection"),
        ({"collection": "docs"}, "store.ids"),
        ({"collection": "a.b", "ids": [1]}, "store.collection"),
        ({"collection": "", "ids": [1]}, "store.collection"),
        ({"collection": "docs", "ids": [-1]}, "store.ids.0"),
        ({"collection": "docs", "ids": [2**64]}, "store.ids.0"),
        ({"collection": "docs", "ids": [True]}, "store.ids.0"),
        ({"collection": "docs", "ids": ["one"]}, "store.ids.0"),
        ({"collection": "docs", "ids": [1], "payloads": ["text"]}, "store.payloads.0"),
    ],
)
async def test_wrong_types_are_named(store: dict[str, object], param: str) -> None:
    app = app_over(record, scripted(record))
    status, body = await post(app, PATH, model=MODEL, input="a", store=store)
    assert (status, body["error"]["param"]) == (400, param)
