"""Cohere's client against the HTTP layer, over a real connection."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import cohere
import pytest
from cohere.core.api_error import ApiError
from cohere.errors import BadRequestError, NotFoundError, ServiceUnavailableError

from exchanges import MODEL, app_over, scripted, serving
from headpond.errors import ContextLengthExceeded, NotReady
from headpond.record import WorkloadRecord
from headpond.testing.scripted import ScriptedBackend
from headpond_workloads.embedding.items import Embedding, EmbedItem, Truncation
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.reranking.items import Score
from headpond_workloads.reranking.record import record as reranking

VALUES = (0.6, -0.8)
TEXT = Embedding(vectors=struct.pack("<2f", *VALUES), dimensions=2, tokens=3)


@contextmanager
def client_of(record: WorkloadRecord, backend: ScriptedBackend) -> Iterator[cohere.ClientV2]:
    with serving(app_over(record, backend)) as url, cohere.ClientV2("none", base_url=url) as client:
        yield client


def test_embed() -> None:
    backend = scripted(embedding, TEXT, TEXT)
    with client_of(embedding, backend) as client:
        found = client.embed(
            model=MODEL,
            texts=["a", "b"],
            input_type="search_query",
            embedding_types=["float", "int8", "uint8", "binary", "ubinary", "base64"],
            truncate="START",
        )
    assert found.response_type == "embeddings_by_type"
    assert found.embeddings.float_ is not None
    assert found.embeddings.float_[1] == pytest.approx(VALUES)
    assert found.embeddings.int8 == [[76, -102]] * 2
    assert found.embeddings.uint8 == [[204, 26]] * 2
    assert found.embeddings.binary == [[0]] * 2
    assert found.embeddings.ubinary == [[128]] * 2
    assert found.embeddings.base64 is not None
    assert len(found.embeddings.base64) == 2
    assert found.texts == ["a", "b"]
    assert found.meta is not None
    assert found.meta.billed_units is not None
    assert found.meta.billed_units.input_tokens == 6
    (item, _) = backend.calls[0].items
    assert isinstance(item, EmbedItem)
    assert item.truncation is Truncation.START
    assert item.preferred_prompts == ("search_query", "query")


def test_embed_inputs() -> None:
    content = cohere.TextEmbedContent(text="a")
    backend = scripted(embedding, TEXT)
    with client_of(embedding, backend) as client:
        found = client.embed(
            model=MODEL,
            inputs=[cohere.EmbedInput(content=[content])],
            input_type="clustering",
            output_dimension=2,
        )
    assert found.embeddings.float_ is not None
    (item,) = backend.calls[0].items
    assert isinstance(item, EmbedItem)
    assert (item.text, item.dimensions, item.param) == ("a", 2, "inputs.0")


def test_rerank() -> None:
    scores = [Score(logits=(0.0,), scores=(value,), tokens=9) for value in (0.25, 0.75, 0.5)]
    with client_of(reranking, scripted(reranking, *scores)) as client:
        found = client.rerank(model=MODEL, query="q", documents=["a", "b", "c"], top_n=2)
    assert [(each.index, each.relevance_score) for each in found.results] == [(1, 0.75), (2, 0.5)]
    assert found.meta is not None
    assert found.meta.billed_units is not None
    assert found.meta.billed_units.search_units == 1
    assert found.meta.api_version is not None
    assert found.meta.api_version.version == "2"


def test_rerank_of_the_older_client() -> None:
    scores = [Score(logits=(0.0,), scores=(value,), tokens=9) for value in (0.25, 0.75)]
    with (
        serving(app_over(reranking, scripted(reranking, *scores))) as url,
        cohere.Client("none", base_url=url) as client,
    ):
        found = client.rerank(
            model=MODEL, query="q", documents=["a", {"text": "b"}], return_documents=True
        )
    best = found.results[0]
    assert best.document is not None
    assert (best.index, best.relevance_score, best.document.text) == (1, 0.75, "b")


def message(error: ApiError) -> str:
    assert set(error.body) == {"message"}
    told: str = error.body["message"]
    return told


def test_errors() -> None:
    backend = scripted(embedding, TEXT)
    with client_of(embedding, backend) as client:
        with pytest.raises(BadRequestError) as refusal:
            client.embed(model=MODEL, texts=["a", ""], input_type="search_query")
        assert message(refusal.value) == "texts.1: must not be empty"
        with pytest.raises(BadRequestError) as image:
            client.embed(model=MODEL, images=["data:image/png;base64,"], input_type="image")
        assert message(image.value).startswith("images: ")
        with pytest.raises(NotFoundError):
            client.embed(model="none", texts=["a"], input_type="search_query")
        backend.refusal = ContextLengthExceeded("300 tokens > 256", param="texts.0")
        with pytest.raises(BadRequestError) as long:
            client.embed(model=MODEL, texts=["a"], input_type="search_query", truncate="NONE")
        assert message(long.value) == "texts.0: 300 tokens > 256"
        backend.refusal = NotReady()
        with pytest.raises(ServiceUnavailableError):
            client.embed(
                model=MODEL,
                texts=["a"],
                input_type="search_query",
                request_options={"max_retries": 0},
            )


async def test_async() -> None:
    with serving(app_over(embedding, scripted(embedding, TEXT))) as url:
        async with cohere.AsyncClientV2("none", base_url=url) as client:
            found = await client.embed(model=MODEL, texts=["a"], input_type="classification")
    assert found.embeddings.float_ is not None
