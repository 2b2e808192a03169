"""Jina's dialect of reranking."""

from __future__ import annotations

from typing import Any

import pytest

from exchanges import HEADING, answer, app_over, post, read, scripted
from headpond.errors import ContextLengthExceeded, UnsupportedParameter
from headpond_workloads.reranking.items import PairItem, Score
from headpond_workloads.reranking.record import record
from headpond_workloads.reranking.schema import Ranking

PATH = "/v1/rerank"
THREE = tuple(Score(logits=(9.0,), scores=(value,), tokens=4) for value in (0.2, 0.9, 0.2))


def body(**fields: object) -> Any:
    asked = {"model": "m", "query": "q", "documents": ["a", "b", "c"], **fields}
    parsed = answer(read(record, PATH, **asked), *THREE)
    Ranking.model_validate(parsed, strict=True)
    return parsed


def test_an_item_for_each_document() -> None:
    ask = read(record, PATH, model="m", query="q", documents=["a", {"text": "b", "id": 5}]).ask()
    assert ask.model == "m"
    assert ask.items == (
        PairItem(query="q", document="a", param="documents.0"),
        PairItem(query="q", document="b", param="documents.1"),
    )


def test_the_best_comes_first_with_its_text() -> None:
    assert body() == {
        "id": "r-1",
        "object": "list",
        "model": "pond",
        "results": [
            {"index": 1, "relevance_score": 0.9, "document": {"text": "b"}},
            {"index": 0, "relevance_score": 0.2, "document": {"text": "a"}},
            {"index": 2, "relevance_score": 0.2, "document": {"text": "c"}},
        ],
        "usage": {"total_tokens": 12, "prompt_tokens": 12},
    }


@pytest.mark.parametrize(("top_n", "indices"), [(1, [1]), (2, [1, 0]), (99, [1, 0, 2])])
def test_the_best_few(top_n: int, indices: list[int]) -> None:
    found = body(top_n=top_n)
    assert [result["index"] for result in found["results"]] == indices
    assert found["usage"]["total_tokens"] == 12


def test_without_texts() -> None:
    found = body(return_documents=False, top_n=1)
    assert found["results"] == [{"index": 1, "relevance_score": 0.9}]


def test_a_query_as_an_object() -> None:
    (item,) = read(record, PATH, model="m", query={"text": "q"}, documents=["a"]).ask().items
    assert isinstance(item, PairItem)
    assert item.query == "q"


def test_the_fields_that_are_ranked() -> None:
    documents = ["plain", {"text": "t", "title": "T", "year": 3}, {"title": "only"}]
    exchange = read(
        record,
        PATH,
        model="m",
        query="q",
        documents=documents,
        rank_fields=["title", "text"],
        return_documents=True,
    )
    items = [item for item in exchange.ask().items if isinstance(item, PairItem)]
    assert [item.document for item in items] == ["plain", "T\nt", "only"]
    results = answer(exchange, *THREE)["results"]
    told = {each["index"]: each["document"] for each in results}
    assert told == {0: {"text": "plain"}, 1: documents[1], 2: documents[2]}


def test_an_empty_document_is_a_document() -> None:
    (item,) = read(record, PATH, model="m", query="q", documents=[""]).ask().items
    assert isinstance(item, PairItem)
    assert item.document == ""


def test_nothing_is_streamed() -> None:
    with pytest.raises(UnsupportedParameter):
        read(record, PATH, model="m", query="q", documents=["a"]).stream(HEADING)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": []}, "documents"),
        ({"documents": "a"}, "documents"),
        ({"documents": ["a", 5]}, "documents.1"),
        ({"documents": [{"title": "a"}]}, "documents.0"),
        ({"documents": ["a", {"text": "b"}], "rank_fields": ["title"]}, "documents.1"),
        ({"documents": [{"title": 3}], "rank_fields": ["title"]}, "documents.0.title"),
        ({"rank_fields": []}, "rank_fields"),
        ({"rank_fields": "title"}, "rank_fields"),
        ({"query": {"title": "a"}}, "query"),
        ({"documents": ["a"] * 2049}, "documents"),
        ({"query": ""}, "query"),
        ({"query": {"text": ""}}, "query"),
        ({"query": None}, "query"),
        ({"top_n": 0}, "top_n"),
        ({"top_n": -1}, "top_n"),
        ({"top_n": "1"}, "top_n"),
        ({"return_documents": "no"}, "return_documents"),
        ({"model": None}, "model"),
    ],
)
async def test_bad_requests_are_named(fields: dict[str, object], param: str) -> None:
    backend = scripted(record, *THREE)
    asked = {"model": "pond", "query": "q", "documents": ["a", "b", "c"], **fields}
    status, found = await post(app_over(record, backend), PATH, **asked)
    assert (status, found["error"]["param"]) == (400, param)
    assert not backend.calls


async def test_a_refusal_of_the_engine_is_passed_on() -> None:
    backend = scripted(record, *THREE)
    backend.refusal = ContextLengthExceeded("600 > 512", param="documents.2")
    asked = {"model": "pond", "query": "q", "documents": ["a", "b", "c"]}
    status, found = await post(app_over(record, backend), PATH, **asked)
    assert status == 400
    assert found["error"] == {
        "message": "600 > 512",
        "type": "invalid_request_error",
        "param": "documents.2",
        "code": "context_length_exceeded",
    }
