"""What came is what ended, failed, was cancelled or was refused: at a replica and before it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headpond.backend import LocalBackend
from headpond.bundle.alias import AliasTable
from headpond.bundle.manifest import Manifest
from headpond.call import Call, ModelCard
from headpond.door import Door
from headpond.engine import Plan, Progress, Quantum
from headpond.errors import EngineFailed, HeadpondError
from headpond.hop import Answered, ReplicaStatus
from headpond.http.app import ASGIApp, build_app
from headpond.lane import LaneAddress
from headpond.routing import RoutedBackend
from headpond.scheduling.loop import loop_for
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.testing.asgi import AsgiRequest
from headpond.testing.echo import EchoEngine, EchoSlot, record
from headpond.testing.echo_dialect import EchoItem
from headpond.units import Work

BUNDLE = "parrot@1.0.0+0123456789ab"
CARD = ModelCard(name="polly", workload="echo", bundles=(BUNDLE,), created_s=1, limits={})
CROWDED = replace(record, overload=replace(record.overload, queue_limit=Work(output_chunks=60)))

Kind = Literal["ok", "fails", "breaks", "bad", "unknown", "late", "gone", "nonsense"]


@dataclass(frozen=True)
class Wish:
    """A request: how it goes wrong, if it does, and whether its answer is streamed."""

    kind: Kind
    stream: bool
    chunks: int


class MoodyEngine(EchoEngine):
    """Fails at some texts: while planning, or amid the steps."""

    def plan(self, item: EchoItem, namespace: str) -> Plan[EchoItem]:
        if item.text == "breaks":
            raise EngineFailed
        return super().plan(item, namespace)

    def step(self, quanta: Sequence[Quantum[EchoSlot]]) -> list[Progress[str]]:
        progress = super().step(quanta)
        failed: Progress[str] = Progress(error=EngineFailed())
        return [
            failed if quantum.slot.item.text == "fails" and quantum.slot.said > 1 else each
            for quantum, each in zip(quanta, progress, strict=True)
        ]


class Replica:
    """A loop behind a door in this process, as a router's handle."""

    def __init__(self) -> None:
        self.metrics_source = Metrics(CROWDED, bundle=BUNDLE, model="polly")
        self.loop = loop_for(
            CROWDED,
            MoodyEngine(step_s=0.0002),
            CROWDED.bind({"most_text_bytes": 64}, "uint8"),
            state_bytes=64,
            max_slots=2,
            bundle=BUNDLE,
            observer=self.metrics_source.observe,
        )
        self.metrics_source.watch(self.loop.snapshot)
        self.backend = LocalBackend(
            record=CROWDED,
            manifest=cast("Manifest", NamedOnly()),
            alias="polly",
            loop=self.loop,
            metrics_source=self.metrics_source,
        )
        self.held: set[asyncio.Task[LaneAddress | HeadpondError | None]] = set()

    async def answer(self, call: Call) -> Answered | HeadpondError:
        return await self.door.answer(call, 1)

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        task = asyncio.create_task(self.door.stream(call, router_id, stream))
        self.held.add(task)
        task.add_done_callback(self.held.discard)
        return await task

    def comes_over(self, stream: int, lane: LaneAddress) -> None:
        """Nobody stands still here."""

    async def statuses(self) -> Sequence[ReplicaStatus]:
        return [ReplicaStatus(card=CARD, reason=None)]

    async def asleep(self) -> bool:
        return False

    async def expositions(self) -> Mapping[str, str]:
        return {"r": self.metrics_source.text()}

    async def start(self) -> None:
        self.loop.start()
        self.door = await Door.open(self.backend, "127.0.0.1")

    async def stop(self) -> None:
        await self.loop.stop(0.0)
        await self.door.close()
        await asyncio.gather(*self.held, return_exceptions=True)


class NamedOnly:
    """A manifest of which only the names matter."""

    names = frozenset({"parrot"})
    ref = BUNDLE


@asynccontextmanager
async def served(*, routed: bool) -> AsyncIterator[tuple[ASGIApp, Replica]]:
    """Serve a replica directly, or behind a router."""
    replica = Replica()
    await replica.start()
    router = RoutedBackend(lambda _: replica)
    await router.start(AliasTable({"polly": {"polly-app": 1}}))
    try:
        yield build_app([CROWDED], router if routed else replica.backend, Settings()), replica
    finally:
        await router.stop()
        await replica.stop()


async def send(app: ASGIApp, wish: Wish) -> None:
    body = {
        "model": "made-up-by-a-client" if wish.kind == "unknown" else "polly",
        "text": wish.kind,
        "chunks": -1 if wish.kind == "bad" else wish.chunks,
        "stream": wish.stream,
    }
    content = b"{" if wish.kind == "nonsense" else json.dumps(body).encode()
    headers = {"x-headpond-deadline-ms": "3"} if wish.kind == "late" else {}
    request = AsgiRequest(path="/v1/echo", parts=[content], headers=headers)
    task = asyncio.create_task(request.run(app))
    if wish.kind == "gone":
        await asyncio.sleep(0.001 * (wish.chunks % 5))
        request.hang_up()
    await task


def samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def total(text: str, name: str) -> float:
    return sum(value for found, _, value in samples(text) if found == name)


async def scraped(app: ASGIApp) -> str:
    request = await AsgiRequest(path="/metrics", method="GET").run(app)
    return request.body.decode()


def check_sums(text: str, prefix: str) -> None:
    """Check that what came is what is over and what is not."""
    over = total(text, f"{prefix}_finished_total") + total(text, f"{prefix}_refused_total")
    assert total(text, f"{prefix}_received_total") == over + total(text, f"{prefix}_open")


wishes = st.builds(
    Wish,
    kind=st.sampled_from(
        ["ok", "ok", "fails", "breaks", "bad", "unknown", "late", "gone", "gone", "nonsense"]
    ),
    stream=st.booleans(),
    chunks=st.integers(min_value=1, max_value=40),
)


@pytest.mark.parametrize("routed", [False, True])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked=st.lists(wishes, min_size=1, max_size=16))
def test_counters_add_up_whatever_happens(*, routed: bool, asked: list[Wish]) -> None:
    async def run() -> None:
        async with served(routed=routed) as (app, _):
            sent = [asyncio.create_task(send(app, wish)) for wish in asked]
            while not all(task.done() for task in sent):
                text = await scraped(app)
                check_sums(text, "headpond_http")
                check_sums(text, "headpond")
                await asyncio.sleep(0.002)
            await asyncio.gather(*sent)
            text = await idle(app)
            check_idle(text, len(asked))
            check_phases(text)
            check_labels(text)

    asyncio.run(run())


async def idle(app: ASGIApp) -> str:
    """Return the metrics once nothing is open any more: what was cancelled ends soon."""
    while True:
        text = await scraped(app)
        if not total(text, "headpond_open"):
            return text
        await asyncio.sleep(0.002)


def check_idle(text: str, sent: int) -> None:
    assert total(text, "headpond_http_received_total") == sent
    assert total(text, "headpond_http_open") == 0
    check_sums(text, "headpond")
    for gauge in ("headpond_open", "headpond_running", "headpond_waiting"):
        assert total(text, gauge) == 0
    assert total(text, "headpond_state_held_bytes") == 0
    # What a router refuses by itself never gets to a replica.
    assert total(text, "headpond_received_total") <= sent


def check_phases(text: str) -> None:
    """Check that the phases of all calls are the time of all calls."""
    phases_s = total(text, "headpond_phase_seconds_sum")
    assert phases_s == pytest.approx(total(text, "headpond_request_seconds_sum"), abs=1e-6)


def check_labels(text: str) -> None:
    """Check that nothing which a client made up is a label."""
    assert "made-up" not in text
    words = {
        value
        for name, labels, _ in samples(text)
        for label, value in labels.items()
        if label in ("outcome", "code") and re.match(r"headpond_(http_)?(finished|refused)", name)
    }
    assert words <= {
        "ok",
        "engine_failed",
        "request_cancelled",
        "deadline_exceeded",
        "overloaded",
        "model_not_found",
        "invalid_request_error",
    }


@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("kind", "family", "word"),
    [
        ("ok", "finished", "ok"),
        ("fails", "finished", "engine_failed"),
        ("breaks", "finished", "engine_failed"),
        ("bad", "refused", "invalid_request_error"),
    ],
)
async def test_router_and_replica_say_the_same(
    *, routed: bool, stream: bool, kind: Kind, family: str, word: str
) -> None:
    async with served(routed=routed) as (app, _):
        await send(app, Wish(kind=kind, stream=stream, chunks=4))
        text = await idle(app)
    label = "code" if family == "refused" else "outcome"
    found = {
        name: value
        for name, labels, value in samples(text)
        if re.fullmatch(r"headpond(_http)?_(finished|refused)_total", name)
        and labels[label if label in labels else "outcome"] == word
    }
    assert found[f"headpond_http_{family}_total"] == 1
    if kind != "bad":
        assert found[f"headpond_{family}_total"] == 1


async def test_what_fails_after_it_was_admitted_names_the_bundle_on_every_path() -> None:
    body = json.dumps({"model": "polly", "text": "x" * 30, "chunks": 30}).encode()
    headers = {"x-headpond-deadline-ms": "3"}
    for routed in (False, True):
        async with served(routed=routed) as (app, replica):
            request = AsgiRequest(path="/v1/echo", parts=[body], headers=headers)
            await request.run(app)
            await idle(app)
        assert request.status == 408
        if replica.loop.snapshot().finished:
            assert request.answer_headers["x-headpond-bundle"] == BUNDLE
