"""Cohere's dialect of embedding."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from exchanges import answer, app_over, post, read, scripted
from headpond.errors import HeadpondError, InvalidRequest, NotReady, UnsupportedParameter
from headpond_workloads.embedding.items import Embedding, EmbedItem, Truncation
from headpond_workloads.embedding.record import record
from headpond_workloads.embedding.schema_cohere import EmbedResponse

PATH = "/v2/embed"
VALUES = (0.6, 0.0, -0.8)
FOUND = Embedding(vectors=struct.pack("<3f", *VALUES), dimensions=3, tokens=5)


def body(*found: Embedding, **fields: object) -> Any:
    parsed = answer(read(record, PATH, model="m", **fields), *found)
    EmbedResponse.model_validate(parsed)
    return parsed


def items(**fields: object) -> list[EmbedItem]:
    found = read(record, PATH, model="m", **fields).ask().items
    return [item for item in found if isinstance(item, EmbedItem)]


def test_every_form() -> None:
    types = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    found = body(FOUND, texts=["a"], embedding_types=types)
    assert list(found["embeddings"]) == types
    assert struct.pack("<3f", *found["embeddings"].pop("float")[0]) == FOUND.vectors
    assert found["embeddings"] == {
        "int8": [[76, 0, -102]],
        "uint8": [[204, 128, 26]],
        "binary": [[0]],
        "ubinary": [[128]],
        "base64": [base64.b64encode(FOUND.vectors).decode()],
    }
    assert found["id"] == "r-1"
    assert found["texts"] == ["a"]
    assert found["response_type"] == "embeddings_by_type"
    assert found["meta"] == {
        "api_version": {"version": "2"},
        "billed_units": {"input_tokens": 5},
    }


def test_floats_by_default_and_each_form_once() -> None:
    assert list(body(FOUND, texts=["a"])["embeddings"]) == ["float"]
    twice = body(FOUND, texts=["a"], embedding_types=["int8", "int8"])
    assert list(twice["embeddings"]) == ["int8"]


def test_texts_are_echoed_whatever_they_hold() -> None:
    strange = '"]}\\ \u0000 é \U0001f600'
    assert body(FOUND, texts=[strange])["texts"] == [strange]


def test_inputs_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    (item,) = items(inputs=[{"content": parts}])
    assert (item.text, item.param) == ("a\nb", "inputs.0")
    assert body(FOUND, inputs=[{"content": parts}])["texts"] == []


@pytest.mark.parametrize(
    ("truncate", "truncation"),
    [
        (None, Truncation.END),
        ("END", Truncation.END),
        ("START", Truncation.START),
        ("NONE", Truncation.NONE),
    ],
)
def test_what_becomes_of_long_texts(truncate: str | None, truncation: Truncation) -> None:
    (item,) = items(texts=["a"], truncate=truncate, max_tokens=7, output_dimension=2)
    assert (item.truncation, item.max_tokens, item.dimensions) == (truncation, 7, 2)


@pytest.mark.parametrize(
    ("input_type", "prompts"),
    [
        (None, ()),
        ("search_query", ("search_query", "query")),
        ("search_document", ("search_document", "document", "passage")),
        ("clustering", ("clustering",)),
    ],
)
def test_an_input_type_is_a_wish_for_a_prompt(
    input_type: str | None, prompts: tuple[str, ...]
) -> None:
    (item,) = items(texts=["a"], input_type=input_type)
    assert (item.prompt, item.preferred_prompts) == (None, prompts)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"images": ["data:"]}, "images"),
        ({"texts": ["a"], "input_type": "image"}, "input_type"),
        (
            {"inputs": [{"content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]},
            "inputs.0.content.1",
        ),
    ],
)
def test_images_are_refused(fields: dict[str, object], param: str) -> None:
    with pytest.raises(UnsupportedParameter) as refusal:
        items(**fields)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "texts"),
        ({"texts": ["a"], "inputs": []}, "inputs"),
        ({"texts": []}, "texts"),
        ({"texts": ["a", ""]}, "texts.1"),
        ({"inputs": [{"content": []}]}, "inputs.0"),
        ({"texts": ["a"] * 2049}, "texts"),
    ],
)
def test_exactly_one_kind_of_text(fields: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        items(**fields)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"texts": "a"}, "texts"),
        ({"texts": [5]}, "texts.0"),
        ({"texts": ["a"], "truncate": "MIDDLE"}, "truncate"),
        ({"texts": ["a"], "embedding_types": ["int4"]}, "embedding_types.0"),
        ({"texts": [""]}, "texts.0"),
        ({"texts": ["a"], "output_dimension": 0}, "output_dimension"),
    ],
)
async def test_errors_are_cohere_s_and_name_the_field(
    fields: dict[str, object], named: str
) -> None:
    app = app_over(record, scripted(record, FOUND))
    status, found = await post(app, PATH, model="pond", **fields)
    assert (status, set(found)) == (400, {"message"})
    assert named in found["message"]


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (InvalidRequest("too long", param="texts.3"), 400, "texts.3: too long"),
        (InvalidRequest("384 at most", param="dimensions"), 400, "output_dimension: 384 at most"),
        (NotReady(), 503, NotReady().message),
        (HeadpondError(), 500, HeadpondError().message),
    ],
)
async def test_errors_of_the_backend(error: HeadpondError, status: int, message: str) -> None:
    backend = scripted(record, FOUND)
    backend.refusal = error
    found = await post(app_over(record, backend), PATH, model="pond", texts=["a"])
    assert found == (status, {"message": message})
