"""Our client against the HTTP layer of every workload, over a real connection."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from PIL import Image

from exchanges import MODEL, app_over, scripted, serving
from headpond.errors import DeadlineExceeded, ModelNotFound
from headpond.record import WorkloadRecord
from headpond.testing.http_script import ScriptedServer
from headpond.testing.scripted import ScriptedBackend
from headpond_workloads.client import AsyncClient, Client
from headpond_workloads.embedding.client_params import EmbeddingParams
from headpond_workloads.embedding.items import Embedding
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.embedding.schema import EmbeddingRequest
from headpond_workloads.generation.items import TextDelta, TokenUsage
from headpond_workloads.generation.params import (
    ChatParams,
    CompletionParams,
    DetokenizeParams,
    TokenizeParams,
)
from headpond_workloads.generation.params_responses import ResponseParams
from headpond_workloads.generation.record import record as generation
from headpond_workloads.generation.schema_chat import ChatCompletionRequest
from headpond_workloads.generation.schema_completions import CompletionRequest
from headpond_workloads.generation.schema_responses import ResponseRequest
from headpond_workloads.generation.schema_tokenize import DetokenizeRequest, TokenizeRequest
from headpond_workloads.reranking.client_params import RerankParams
from headpond_workloads.reranking.items import Score
from headpond_workloads.reranking.record import record as reranking
from headpond_workloads.reranking.schema import RerankRequest
from headpond_workloads.vision.items import Classification, ClassScore, ImageItem
from headpond_workloads.vision.record import record as vision

OPTIONS = {"timeout_s", "deadline_s", "max_retries", "extra_headers", "extra_body"}
SAID = TextDelta(
    text="hello",
    finish_reason="stop",
    usage=TokenUsage(prompt_tokens=3, completion_tokens=1),
)
SEEN = Classification(classes=(ClassScore("cat", 3, 0.75),), pixels=12)


def vector(*values: float) -> Embedding:
    packed = struct.pack(f"<{len(values)}f", *values)
    return Embedding(vectors=packed, dimensions=len(values), tokens=3)


@contextmanager
def served(record: WorkloadRecord, backend: ScriptedBackend) -> Iterator[str]:
    with serving(app_over(record, backend)) as url:
        yield url


@pytest.fixture
def chatting() -> Iterator[tuple[str, ScriptedBackend]]:
    backend = scripted(generation, SAID)
    with served(generation, backend) as url:
        yield url, backend


def test_a_deadline_of_one_call_reaches_the_server(chatting: tuple[str, ScriptedBackend]) -> None:
    url, backend = chatting
    with Client(base_url=url, deadline_s=100) as client:
        create = client.chat.completions.create
        answer = create(model=MODEL, messages=[{"role": "user", "content": "a"}], deadline_s=5)
        assert answer.choices[0].message.content == "hello"
        create(model=MODEL, messages=[{"role": "user", "content": "a"}])
    own, clients = (call.deadline_s for call in backend.calls)
    assert 0 < own <= 5 < clients <= 100


async def test_a_deadline_of_one_async_call_reaches_the_server(
    chatting: tuple[str, ScriptedBackend],
) -> None:
    url, backend = chatting
    async with AsyncClient(base_url=url) as client:
        stream = await client.completions.create(model=MODEL, prompt="a", stream=True, deadline_s=5)
        async with stream:
            texts = [chunk.choices[0].text async for chunk in stream]
    assert "".join(texts) == "hello"
    assert backend.calls[0].deadline_s <= 5


def test_options_of_one_call_are_its_own() -> None:
    refusal = httpx2.Response(503, json={"error": {"message": "no", "code": "overloaded"}})
    server = ScriptedServer(refusal, refusal)
    with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
        client = Client(http_client=http, max_retries=5, headers={"a": "1"})
        with pytest.raises(Exception, match="no"):
            client.embeddings.create(
                model="m", input="a", max_retries=0, extra_headers={"A": "2"}, deadline_s=None
            )
        with pytest.raises(ValueError, match="deadline_s"):
            client.embeddings.create(model="m", input="a", deadline_s=0)
    (request,) = server.requests
    assert request.headers["a"] == "2"
    assert json.loads(request.content) == {"model": "m", "input": "a"}


def test_an_argument_that_nobody_knows_is_no_field() -> None:
    server = ScriptedServer()
    ask: Any = {"model": "m", "messages": [], "temprature": 1}
    with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
        client = Client(http_client=http)
        with pytest.raises(TypeError, match=r"'temprature'.*extra_body"):
            client.chat.completions.create(**ask)
        with pytest.raises(TypeError, match="'sample_hz'"):
            client.realtime.connect(model="m", sample_hz=1).__enter__()  # type: ignore[call-arg]
    assert server.requests == []


@pytest.mark.parametrize(
    ("params", "request_type"),
    [
        (ChatParams, ChatCompletionRequest),
        (CompletionParams, CompletionRequest),
        (ResponseParams, ResponseRequest),
        (TokenizeParams, TokenizeRequest),
        (DetokenizeParams, DetokenizeRequest),
        (EmbeddingParams, EmbeddingRequest),
        (RerankParams, RerankRequest),
    ],
)
def test_every_argument_is_a_field_of_the_request(params: Any, request_type: Any) -> None:
    names = params.__required_keys__ | params.__optional_keys__
    assert names >= OPTIONS
    assert names - OPTIONS <= set(request_type.model_fields)


def test_vectors_are_arrays() -> None:
    backend = scripted(embedding, vector(0.5, 1.0), vector(2.0, 4.0))
    with served(embedding, backend) as url, Client(base_url=url) as client:
        create = client.embeddings.create
        found = create(model=MODEL, input=["a", "b"], encoding_format="base64")
    array = found.numpy()
    assert array.dtype == np.float32
    assert array.tolist() == [[0.5, 1.0], [2.0, 4.0]]


def test_documents_come_back_ranked() -> None:
    scores = [Score(logits=(9.0,), scores=(value,), tokens=4) for value in (0.25, 0.75)]
    with served(reranking, scripted(reranking, *scores)) as url, Client(base_url=url) as client:
        found = client.rerank(model=MODEL, query="q", documents=["a", "b"], deadline_s=9)
        assert [each.index for each in found.results] == [1, 0]
        with pytest.raises(ModelNotFound):
            client.rerank(model="none", query="q", documents=["a", "b"])


def picture_bytes() -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (4, 3), (255, 0, 0)).save(written, format="PNG")
    return written.getvalue()


def test_pictures_go_out_as_they_are_at_hand(tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    path.write_bytes(picture_bytes())
    backend = scripted(vision, SEEN)
    with served(vision, backend) as url, Client(base_url=url) as client:
        create = client.classifications.create
        for image in (
            path,
            path.read_bytes(),
            io.BytesIO(path.read_bytes()),
            Image.open(path),
            np.full((3, 4, 3), (255, 0, 0), np.uint8),
        ):
            answer = create(model=MODEL, image=image)
            assert answer.data[0].classes is not None
            assert answer.data[0].classes[0].label == "cat"
        with pytest.raises(TypeError, match="int is no picture"):
            create(model=MODEL, image=5)  # type: ignore[arg-type]
    for call in backend.calls:
        (item,) = call.items
        assert isinstance(item, ImageItem)
        assert isinstance(item.data, bytes)
        assert Image.open(io.BytesIO(item.data)).convert("RGB").getpixel((0, 0)) == (255, 0, 0)


async def test_vectors_ranks_and_classes_from_asyncio() -> None:
    score = Score(logits=(9.0,), scores=(0.5,), tokens=4)
    with served(embedding, scripted(embedding, vector(0.5))) as url:
        async with AsyncClient(base_url=url) as client:
            found = await client.embeddings.create(model=MODEL, input="a", deadline_s=9)
    assert found.data[0].vector == [0.5]
    with served(reranking, scripted(reranking, score)) as url:
        async with AsyncClient(base_url=url) as client:
            ranking = await client.rerank(model=MODEL, query="q", documents=["a"])
    assert ranking.results[0].relevance_score == 0.5
    with served(vision, scripted(vision, SEEN)) as url:
        async with AsyncClient(base_url=url) as client:
            seen = await client.classifications.create(model=MODEL, image=picture_bytes())
            with pytest.raises(ModelNotFound):
                await client.classifications.create(model="none", image=picture_bytes())
    assert seen.usage.images >= 0


def test_models_and_workloads_of_a_live_server() -> None:
    with served(embedding, scripted(embedding, vector(1.0))) as url, Client(base_url=url) as client:
        assert [model.workload for model in client.models.list().data] == ["embedding"]
        (workload,) = client.workloads()
    assert workload.name == "embedding"
    assert workload.routes[0].path == "/v1/embeddings"
    assert workload.routes[0].example["input"]
    assert workload.throughput[0].bounds.total_s == 2.0
    assert workload.phases[0].name == "validate"


def test_a_call_past_its_deadline_is_not_sent_again() -> None:
    late = httpx2.Response(408, json={"error": {"message": "late", "code": "deadline_exceeded"}})
    server = ScriptedServer(late)
    with (
        httpx2.Client(transport=httpx2.MockTransport(server)) as http,
        pytest.raises(DeadlineExceeded),
    ):
        Client(http_client=http).embeddings.create(model="m", input="a", deadline_s=9)
    assert len(server.requests) == 1
