"""Texts as requests bring them: the forms, and what is wrong with others."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from headpond.errors import InvalidRequest
from headpond.http.errors import invalid_request
from headpond_workloads.embedding.schema import EmbeddingRequest
from headpond_workloads.embedding.schema_texts import Texts, TextSource, sources
from headpond_workloads.encoders.errors import EmptyInput, TooManyInputs

ADAPTER: TypeAdapter[Texts] = TypeAdapter(Texts)
NON_EMPTY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)


def found(texts: object) -> list[tuple[str, TextSource]]:
    return sources(ADAPTER.validate_json(json.dumps(texts)), "input")


@given(NON_EMPTY)
def test_one_text(text: str) -> None:
    assert found(text) == [("input", text)]


@given(IDS)
def test_the_tokens_of_one_text(ids: list[int]) -> None:
    assert found(ids) == [("input", tuple(ids))]


@given(st.lists(NON_EMPTY | IDS, min_size=1, max_size=5))
def test_many_texts_keep_their_order_and_say_where_they_are(texts: list[str | list[int]]) -> None:
    expected = [text if isinstance(text, str) else tuple(text) for text in texts]
    assert found(texts) == [(f"input.{at}", text) for at, text in enumerate(expected)]


@pytest.mark.parametrize(
    ("texts", "param"),
    [
        ("", "input"),
        ([], "input"),
        (["a", ""], "input.1"),
        ([[1], []], "input.1"),
        ([[]], "input.0"),
    ],
)
def test_empty_texts_are_named(texts: object, param: str) -> None:
    with pytest.raises(EmptyInput) as refusal:
        found(texts)
    assert refusal.value.param == param


def test_too_many_texts_are_refused_with_both_numbers() -> None:
    assert len(found(["a"] * 2048)) == 2048
    with pytest.raises(TooManyInputs, match=r"2049.*2048"):
        found(["a"] * 2049)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 5}, "input"),
        ({"input": None}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({}, "input"),
        ({"input": [True]}, "input.0"),
        ({"input": [1, "a"]}, "input.1"),
        ({"input": [1.5]}, "input.0"),
        ({"input": [1, 2**31]}, "input.1"),
        ({"input": [-1]}, "input.0"),
        ({"input": [["a"]]}, "input.0"),
        ({"input": ["a", None]}, "input.1"),
        ({"input": ["a", [1, "b"]]}, "input.1"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": "8"}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "model": ""}, "model"),
        ({"input": "a", "model": None}, "model"),
    ],
)
def test_wrong_types_are_named(fields: dict[str, object], param: str) -> None:
    body = json.dumps({"model": "m", **fields}).encode()
    with pytest.raises(ValidationError) as refusal:
        EmbeddingRequest.model_validate_json(body)
    named = invalid_request(refusal.value, body).param or ""
    assert named == param or named.startswith(f"{param}.")


def test_a_text_of_a_wrong_type_is_one_problem() -> None:
    body = b'{"model": "m", "input": ["a", 1]}'
    with pytest.raises(ValidationError) as refusal:
        EmbeddingRequest.model_validate_json(body)
    assert invalid_request(refusal.value, body).message == (
        "input.1: must be a string or an array of token IDs"
    )


def test_a_million_bad_entries_are_one_error() -> None:
    body = json.dumps({"model": "m", "input": ["a"] + [None] * 500_000}).encode()
    with pytest.raises(ValidationError) as refusal:
        EmbeddingRequest.model_validate_json(body)
    assert refusal.value.error_count() < 5


def test_null_is_the_same_as_absent_and_unknown_fields_are_ignored() -> None:
    body = {"model": "m", "input": "a", "dimensions": None, "user": None, "colour": "blue"}
    assert EmbeddingRequest.model_validate(body) == EmbeddingRequest(model="m", input="a")


def test_the_refusals_are_bad_requests() -> None:
    assert issubclass(EmptyInput, InvalidRequest)
    assert EmptyInput.status == TooManyInputs.status == 400
