"""A toy workload whose payloads are plain words, and an app over a scripted backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from headpond.bundle.contract import Contract
from headpond.call import Accepted, Failed, ModelCard, Output
from headpond.dialect import Ask, Heading, ItemEvent, Route, SseEvent
from headpond.errors import InvalidRequest, Overloaded
from headpond.http.app import ASGIApp, build_app
from headpond.http.endpoint import Patience
from headpond.record import (
    Bounds,
    Continuous,
    Dim,
    Failure,
    Fit,
    Limiter,
    MetricAlias,
    Overload,
    Phase,
    PhaseKind,
    RequestShape,
    Tally,
    ThroughputUnit,
    WorkloadRecord,
)
from headpond.settings import Settings
from headpond.state import StateTerm
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work, WorkUnit

BUNDLE = "toy-small@1+0123456789ab"


class ToyPart(BaseModel):
    weight: int
    kind: str | list[str] = "plain"


class ToyRequest(BaseModel):
    model: str
    text: str
    stream: bool = False
    parts: list[ToyPart] = []


class ToyAnswer(BaseModel):
    model: str
    text: str
    bundle: str


class ToyChunk(BaseModel):
    word: str


@dataclass(frozen=True)
class ToyWriter:
    def write(self, events: Sequence[ItemEvent]) -> Sequence[SseEvent]:
        return [
            SseEvent(data=ToyChunk(word=word).model_dump_json(), name="word")
            for word in words(events)
        ]

    def close(self, work: Work) -> Sequence[SseEvent]:
        return [SseEvent(data="[DONE]")]


def words(events: Sequence[ItemEvent]) -> list[str]:
    for event in events:
        if isinstance(event, Failed):
            raise event.error
    return [str(event.payload) for event in events if isinstance(event, Output)]


@dataclass(frozen=True)
class ToyExchange:
    request: ToyRequest

    def ask(self) -> Ask:
        if self.request.text == "forbidden":
            raise InvalidRequest("text must be another", param="text")
        return Ask(model=self.request.model, items=(self.request.text,), stream=self.request.stream)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> BaseModel:
        text = " ".join(words(events))
        return ToyAnswer(model=heading.model, text=text, bundle=heading.fingerprint)

    def stream(self, heading: Heading) -> ToyWriter:
        return ToyWriter()


def toy_cost(shape: object) -> Work:
    """Count one toy unit."""
    return Work(toys=3)


@pytest.fixture
def record() -> WorkloadRecord:
    return WorkloadRecord(
        name="toy",
        summary="Repeats words.",
        routes=(
            Route.json(
                "/v1/toy",
                "Repeat words.",
                request=ToyRequest,
                exchange=ToyExchange,
                response=ToyAnswer,
                example={"text": "one two"},
                chunk=ToyChunk,
            ),
            Route.json(
                "/v1/toy/whole",
                "Repeat words at once.",
                request=ToyRequest,
                exchange=ToyExchange,
                response=ToyAnswer,
                example={"text": "one two"},
            ),
        ),
        request=RequestShape(dims=(Dim(name="words", summary="Words."),), max_body_bytes=2000),
        units=(WorkUnit(name="toys", summary="Toys."),),
        cost=toy_cost,
        symbols=("width",),
        state=(StateTerm(name="box", shape=("words", "width")),),
        batching=Continuous(axis="words", extent=("words",)),
        throughput=(
            ThroughputUnit(
                unit="toys", bounds=Bounds(first_output_s=1.0, gap_s=0.1), quality="same words"
            ),
        ),
        phases=(
            Phase(name="validate", kind=PhaseKind.HOST),
            Phase(name="queue", kind=PhaseKind.QUEUE),
            Phase(name="play", kind=PhaseKind.DEVICE),
            Phase(name="delivery", kind=PhaseKind.DELIVERY),
        ),
        fit=Fit(devices=("cpu",), dtypes=("float32",), limited_by=Limiter.COMPUTE, static_bytes=()),
        overload=Overload(
            queue_limit=Work(toys=10),
            deadline_s=30.0,
            failures=(Failure(name="flood", summary="Too many toys.", error=Overloaded),),
        ),
        contracts=(Contract(name="words", vouches_for="the words"),),
        engine="toy:load",
        tallies=(Tally(name="springs", summary="Springs wound up."),),
        metric_aliases=(
            MetricAlias(name="vllm:num_requests_running", measure="running"),
            MetricAlias(name="vllm:kv_cache_usage_perc", measure="state_used_ratio"),
            MetricAlias(name="vllm:time_to_first_token_seconds", measure="first_output_s"),
            MetricAlias(name="vllm:request_queue_time_seconds", measure="queue_s"),
            MetricAlias(name="vllm:request_success", measure="finished"),
            MetricAlias(name="toys_done", measure="work:toys"),
            MetricAlias(name="toy_play_seconds", measure="phase_s:play"),
            MetricAlias(name="toy_springs", measure="tally:springs"),
        ),
    )


@pytest.fixture
def backend() -> ScriptedBackend:
    card = ModelCard(
        name="org/toy-small",
        workload="toy",
        bundles=(BUNDLE,),
        created_s=1_700_000_000,
        limits={"words": 8},
    )
    return ScriptedBackend(
        accepted=Accepted(bundle=BUNDLE, model="org/toy-small", work=Work(toys=9)), cards=(card,)
    )


@pytest.fixture
def make_app(record: WorkloadRecord, backend: ScriptedBackend) -> Callable[[Settings], ASGIApp]:
    def make(settings: Settings) -> ASGIApp:
        return build_app(
            [record], backend, settings, patience=Patience(keep_alive_s=0.02, grace_s=0.0)
        )

    return make


@pytest.fixture
def app(make_app: Callable[[Settings], ASGIApp]) -> ASGIApp:
    return make_app(Settings())
