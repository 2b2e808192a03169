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


def test_what_is_sent_with_a_document_comes_back_as_it_was() -> None:
    document = {"text": "a", "none": None, "deep": {"none": None, "n": 1}}
    exchange = read(record, PATH, model="m", query="q", documents=[document])
    (result,) = answer(exchange, THREE[0])["results"]
    assert result["document"] == document


def test_numbers_beside_a_document_that_json_has_no_word_for_are_null() -> None:
    document = {"text": "a", "x": float("nan"), "y": [float("inf")]}
    exchange = read(record, PATH, model="m", query="q", documents=[document])
    (result,) = answer(exchange, THREE[0])["results"]
    assert result["document"] == {"text": "a", "x": None, "y": [None]}


def test_which_tokens_of_a_document_count() -> None:
    asked = {"model": "m", "query": "q", "documents": ["a"]}
    fields = {"max_tokens_per_doc": 7, "truncation": False, "max_chunks_per_doc": 1}
    quiet = {"relevant_spans": {"mode": "disabled"}, "priority": 5}
    (item,) = read(record, PATH, **asked, **fields, **quiet).ask().items
    assert isinstance(item, PairItem)
    assert (item.max_document_tokens, item.truncate) == (7, False)


def test_raw_scores() -> None:
    assert {each["relevance_score"] for each in body(raw_scores=True)["results"]} == {9.0}


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
        ({"documents": [{"text": 5}]}, "documents.0.text"),
        (
            {"documents": [{"title": "t", "year": 5}], "rank_fields": ["title", "year"]},
            "documents.0.year",
        ),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ({"max_tokens_per_doc": "5"}, "max_tokens_per_doc"),
        ({"max_chunks_per_doc": 5}, "max_chunks_per_doc"),
        ({"max_chunks_per_doc": "x"}, "max_chunks_per_doc"),
        ({"relevant_spans": True}, "relevant_spans"),
        ({"priority": 1000}, "priority"),
        ({"truncation": "x"}, "truncation"),
        ({"raw_scores": 1}, "raw_scores"),
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


async def test_a_wrong_field_is_told_once() -> None:
    asked = {"model": "pond", "query": "q", "documents": ["a"], "rank_fields": [5, 6]}
    _, found = await post(app_over(record, scripted(record, *THREE)), PATH, **asked)
    assert found["error"]["message"] == "rank_fields.0: Input should be a valid string"


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
