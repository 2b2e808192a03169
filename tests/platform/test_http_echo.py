"""The whole of one process: HTTP, the loop and an engine without a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headpond.backend import LocalBackend
from headpond.bundle.store import open_bundle
from headpond.http.app import ASGIApp, build_app
from headpond.scheduling.loop import ContinuousLoop
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.testing.asgi import AsgiRequest
from headpond.testing.echo import EchoEngine, record, write_echo_bundle


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[LocalBackend]:
    bundle = open_bundle(write_echo_bundle(tmp_path / "parrot"), cache=tmp_path / "cache")
    manifest = bundle.manifest
    metrics = Metrics(record, bundle=manifest.ref, model="polly")
    loop = ContinuousLoop(
        record,
        EchoEngine(step_s=0.001),
        record.bind(manifest.model, manifest.execution.dtype),
        state_bytes=2**20,
        max_slots=8,
        bundle=manifest.ref,
        observer=metrics.observe,
    )
    metrics.watch(loop.snapshot)
    loop.start()
    yield LocalBackend(
        record=record, manifest=manifest, alias="polly", loop=loop, metrics_source=metrics
    )
    await loop.stop(0.0)


@pytest.fixture
def app(backend: LocalBackend) -> ASGIApp:
    return build_app([record], backend, Settings())


@pytest.fixture
async def client(app: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as opened:
        yield opened


async def test_a_text_comes_back_whole(client: httpx2.AsyncClient, backend: LocalBackend) -> None:
    answer = await client.post("/v1/echo", json={"model": "polly", "text": "hello", "chunks": 3})
    assert answer.status_code == 200
    assert answer.json() == {"model": "polly", "text": "hello"}
    assert answer.headers["x-headpond-bundle"] == backend.manifest.ref
    assert answer.headers["x-headpond-work"] == "input_bytes=5, output_chunks=3"
    phases = [part.split(";")[0] for part in answer.headers["server-timing"].split(", ")]
    assert phases == [phase.name for phase in record.phases]


async def test_a_text_comes_back_in_pieces(client: httpx2.AsyncClient) -> None:
    body = {"model": "polly", "text": "hello", "chunks": 5, "stream": True}
    answer = await client.post("/v1/echo", json=body)
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if "data:" in line]
    assert events.pop() == "[DONE]"
    assert [json.loads(event)["text"] for event in events] == list("hello")


async def test_errors_are_those_of_the_loop(client: httpx2.AsyncClient) -> None:
    for body, status, param in (
        ({"model": "nobody", "text": "x"}, 404, "model"),
        ({"model": "polly", "text": "x", "chunks": 0}, 400, "chunks"),
        ({"model": "polly", "text": "x" * 2**20 + "x"}, 400, "text"),
    ):
        for stream in (False, True):
            answer = await client.post("/v1/echo", json={**body, "stream": stream})
            assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


async def test_hanging_up_frees_the_slot(app: ASGIApp, backend: LocalBackend) -> None:
    body = {"model": "polly", "text": "x" * 4000, "chunks": 4000, "stream": True}
    request = AsgiRequest(path="/v1/echo", parts=[json.dumps(body).encode()])
    task = asyncio.create_task(request.run(app))
    await request.until(chunks=1)
    assert backend.loop.snapshot().running_slots == 1
    request.hang_up()
    await task
    await backend.loop.stop(drain_s=10.0)  # would say all of it, if it still could
    assert backend.loop.snapshot().state_held_bytes == 0
    assert backend.loop.snapshot().finished["request_cancelled"] == 1


async def test_a_deadline_ends_a_stream_with_an_error(app: ASGIApp) -> None:
    body = {"model": "polly", "text": "x" * 4000, "chunks": 4000, "stream": True}
    request = AsgiRequest(
        path="/v1/echo",
        parts=[json.dumps(body).encode()],
        headers={"x-headpond-deadline-ms": "100"},
    )
    await request.run(app)
    assert b'"deadline_exceeded"' in request.chunks[-1]
    assert b"[DONE]" not in request.body


async def test_metrics_tell_what_was_done(client: httpx2.AsyncClient) -> None:
    for _ in range(3):
        await client.post("/v1/echo", json={"model": "polly", "text": "hello", "chunks": 2})
    families = text_string_to_metric_families((await client.get("/metrics")).text)
    samples = {
        (sample.name, sample.labels.get("unit") or sample.labels.get("phase")): sample.value
        for family in families
        for sample in family.samples
    }
    assert samples["headpond_work_total", "output_chunks"] == 6
    assert samples["headpond_goodput_total", "output_chunks"] == 6
    assert samples["headpond_running", None] == 0
    for phase in record.phases:
        assert samples["headpond_http_phase_seconds_count", phase.name] == 3


async def test_the_model_is_listed_and_ready(client: httpx2.AsyncClient) -> None:
    (card,) = (await client.get("/v1/models")).json()["data"]
    assert (card["id"], card["workload"]) == ("polly", "echo")
    assert (await client.get("/health")).status_code == 200
