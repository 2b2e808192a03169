"""Cohere's dialect of reranking."""

from __future__ import annotations

from typing import Any

import pytest

from exchanges import answer, app_over, post, read, scripted
from headpond.errors import UnsupportedParameter
from headpond_workloads.reranking.items import PairItem, Score
from headpond_workloads.reranking.record import record
from headpond_workloads.reranking.schema_cohere import CohereRanking

PATH = "/v2/rerank"


def score(value: float) -> Score:
    return Score(logits=(9.0,), scores=(value,), tokens=4)


def body(*found: Score, **fields: object) -> Any:
    asked = {"model": "m", "query": "q", "documents": ["a"] * len(found), **fields}
    parsed = answer(read(record, PATH, **asked), *found)
    CohereRanking.model_validate(parsed, strict=True)
    return parsed


@pytest.mark.parametrize(("limit", "tokens"), [(None, 4096), (64, 64)])
def test_documents_are_cut(limit: int | None, tokens: int) -> None:
    exchange = read(
        record, PATH, model="m", query="q", documents=["a"], max_tokens_per_doc=limit, priority=3
    )
    assert exchange.ask().items == (
        PairItem(query="q", document="a", max_document_tokens=tokens, param="documents.0"),
    )


def test_the_best_comes_first_without_its_text() -> None:
    assert body(score(0.1), score(0.8), top_n=1) == {
        "id": "r-1",
        "results": [{"index": 1, "relevance_score": 0.8}],
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
    }


@pytest.mark.parametrize(("documents", "units"), [(1, 1), (100, 1), (101, 2)])
def test_a_search_unit_is_a_hundred_documents(documents: int, units: int) -> None:
    found = body(*[score(0.5)] * documents)
    assert found["meta"]["billed_units"] == {"search_units": units}


def test_spans_are_refused_unless_they_are_off() -> None:
    asked = {"model": "m", "query": "q", "documents": ["a"]}
    assert read(record, PATH, **asked, relevant_spans={"mode": "disabled"}).ask().items
    for spans in (True, 5, "enabled", {"mode": 5}):
        with pytest.raises(UnsupportedParameter):
            read(record, PATH, **asked, relevant_spans=spans).ask()
    with pytest.raises(UnsupportedParameter) as refusal:
        read(record, PATH, **asked, relevant_spans={"mode": "enabled", "threshold": 0.1}).ask()
    assert refusal.value.param == "relevant_spans"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"documents": []}, "documents"),
        ({"documents": [{"text": "a"}]}, "documents.0"),
        ({"query": ""}, "query"),
        ({"top_n": 0}, "top_n"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ({"priority": 1000}, "priority"),
    ],
)
async def test_errors_are_cohere_s_and_name_the_field(
    fields: dict[str, object], named: str
) -> None:
    app = app_over(record, scripted(record, score(0.5)))
    status, found = await post(
        app, PATH, **{"model": "pond", "query": "q", "documents": ["a"], **fields}
    )
    assert (status, set(found)) == (400, {"message"})
    assert found["message"].startswith(f"{named}: ")
