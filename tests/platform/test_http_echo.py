"""The whole of one process: HTTP, the loop and an engine without a model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headpond.backend import LocalBackend
from headpond.bundle.store import open_bundle
from headpond.call import Call, Done, Ended, Output
from headpond.door import Door
from headpond.engine import Immediate, Plan
from headpond.hop import Answered
from headpond.http.app import ASGIApp, build_app
from headpond.hub import LaneHub
from headpond.lane import LaneAddress
from headpond.scheduling.loop import loop_for
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.testing.asgi import AsgiRequest
from headpond.testing.echo import EchoEngine, record, write_echo_bundle
from headpond.testing.echo_dialect import EchoItem
from headpond.units import Work


class KnowingEngine(EchoEngine):
    """Answers a text that it knows while planning; its steps would never end."""

    def plan(self, item: EchoItem, namespace: str) -> Plan[EchoItem]:
        if item.text != "known":
            return super().plan(item, namespace)
        answer = Immediate(outputs=("kno", "wn"), work=Work(input_bytes=5))
        return Plan(shape={}, prepared=item, answer=answer)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[LocalBackend]:
    bundle = open_bundle(write_echo_bundle(tmp_path / "parrot"), cache=tmp_path / "cache")
    manifest = bundle.manifest
    metrics = Metrics(record, bundle=manifest.ref, model="polly")
    loop = loop_for(
        record,
        KnowingEngine(step_s=0.001),
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


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
async def test_a_jump_of_the_clock_changes_no_deadline_and_no_phase(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    now = time.time
    jumped = iter([False] * 2 + [True] * 1_000)  # amid the request, if anybody asks
    monkeypatch.setattr(time, "time", lambda: now() + (jump_s if next(jumped) else 0.0))
    answer = await client.post("/v1/echo", json={"model": "polly", "text": "hello", "chunks": 30})
    assert answer.json() == {"model": "polly", "text": "hello"}
    spent = [float(part.split("dur=")[1]) for part in answer.headers["server-timing"].split(", ")]
    assert all(0 <= each < 60_000 for each in spent)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_planning_answers_comes_at_once(
    client: httpx2.AsyncClient, backend: LocalBackend, *, stream: bool
) -> None:
    body = {"model": "polly", "text": "known", "chunks": 2, "stream": stream}
    answer = await client.post("/v1/echo", json=body)
    if stream:
        lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
        assert [json.loads(line.removeprefix("data: "))["text"] for line in lines] == ["kno", "wn"]
    else:
        assert answer.json() == {"model": "polly", "text": "known"}
        assert "speak;dur=0.000" in answer.headers["server-timing"]
    assert answer.headers["x-headpond-work"] == "input_bytes=5"
    snapshot = backend.loop.snapshot()
    assert (snapshot.finished, snapshot.steps) == ({"ok": 1}, 0)
    text = (await client.get("/metrics")).text
    assert "headpond_finished_total{bundle" in text
    assert 'phase="queue"' in text


@pytest.fixture
async def door(backend: LocalBackend) -> AsyncIterator[Door]:
    opened = await Door.open(backend, "127.0.0.1")
    yield opened
    await opened.close()


@pytest.fixture
async def hub() -> AsyncIterator[LaneHub]:
    opened = LaneHub()
    yield opened
    await opened.close()


async def test_what_planning_answers_comes_over_the_routed_door_too(
    door: Door, hub: LaneHub
) -> None:
    call = Call(
        request_id="r",
        tenant="t",
        workload="echo",
        model="polly",
        items=(EchoItem(text="known"),),
        deadline_s=5.0,
    )
    expected = [Output(0, "kno"), Output(0, "wn"), Done(0, Work(input_bytes=5))]
    answered = await door.answer(call, 1)
    assert isinstance(answered, Answered)
    assert list(answered.events[:-1]) == expected
    streamed = replace(call, stream=True)
    stream = hub.open_stream()
    address = await door.stream(streamed, hub.router_id, stream.number)
    assert isinstance(address, LaneAddress)
    await hub.connect(address)
    assert await door.stream(streamed, hub.router_id, stream.number) is None
    events = [event async for batch in stream.mailbox.batches() for event in batch]
    assert events[:-1] == expected
    assert isinstance(events[-1], Ended)
    assert list(events[-1].phases_s) == ["queue"]  # the first phase of a replica: planning


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
