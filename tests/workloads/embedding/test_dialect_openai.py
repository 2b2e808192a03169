"""OpenAI's dialect of embedding."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from exchanges import HEADING, answer, app_over, post, read, scripted, scripted_events
from headpond.call import Ended, Failed
from headpond.errors import EngineFailed, InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.embedding.items import Embedding, EmbedItem, Truncation
from headpond_workloads.embedding.record import record
from headpond_workloads.embedding.schema import EmbeddingList

PATH = "/v1/embeddings"


def vector(*values: float, tokens: int = 3) -> Embedding:
    packed = struct.pack(f"<{len(values)}f", *values)
    return Embedding(vectors=packed, dimensions=len(values), tokens=tokens)


def body(*found: Embedding, **fields: object) -> Any:
    return answer(read(record, PATH, model="m", **fields), *found)


def test_an_item_for_each_text_that_is_never_cut() -> None:
    ask = read(
        record, PATH, model="m", input=["a", [1, 2]], dimensions=4, prompt_name="query"
    ).ask()
    assert ask.model == "m"
    assert not ask.stream
    assert ask.items == tuple(
        EmbedItem(
            text=text,
            truncation=Truncation.NONE,
            prompt="query",
            dimensions=4,
            max_tokens_param="truncate_prompt_tokens",
            param=param,
        )
        for text, param in (("a", "input.0"), ((1, 2), "input.1"))
    )


@pytest.mark.parametrize(
    ("fields", "truncation", "most"),
    [
        ({"truncate_prompt_tokens": 5}, Truncation.END, 5),
        ({"truncate_prompt_tokens": -1}, Truncation.END, None),
        ({"truncate_prompt_tokens": None}, Truncation.NONE, None),
        ({"truncate": "START"}, Truncation.START, None),
        ({"truncate": "NONE", "truncate_prompt_tokens": 5}, Truncation.NONE, 5),
    ],
)
def test_a_cut_that_is_asked_for(
    fields: dict[str, object], truncation: Truncation, most: int | None
) -> None:
    (item,) = read(record, PATH, model="m", input="a", **fields).ask().items
    assert isinstance(item, EmbedItem)
    assert (item.truncation, item.max_tokens) == (truncation, most)


def test_what_other_servers_take_is_done() -> None:
    fields = {"normalize": False, "input_type": "query"}
    (item,) = read(record, PATH, model="m", input="a", **fields).ask().items
    assert isinstance(item, EmbedItem)
    assert item.normalize is False
    assert item.preferred_prompts[0] == "query"


@pytest.mark.parametrize(
    "fields",
    [
        {"normalize": "x"},
        {"truncate": True},
        {"truncate_prompt_tokens": -2},
        {"truncate_prompt_tokens": "5"},
        {"input_type": "image"},
    ],
)
async def test_wrong_extensions_are_named(fields: dict[str, object]) -> None:
    app = app_over(record, scripted(record, vector(1)))
    status, found = await post(app, PATH, model="pond", input="a", **fields)
    assert (status, found["error"]["param"]) == (400, *fields)


def test_vectors_in_the_order_of_the_texts() -> None:
    found = body(vector(0.5, -0.25), vector(1, 0, tokens=4), input=["a", "b"])
    assert found == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.5, -0.25]},
            {"object": "embedding", "index": 1, "embedding": [1, 0]},
        ],
        "model": "pond",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    EmbeddingList.model_validate(found, strict=True)


def test_base64() -> None:
    found = EmbeddingList.model_validate(
        body(vector(0.1, -2), input="a", encoding_format="base64"), strict=True
    )
    assert isinstance(found.data[0].embedding, str)
    assert found.data[0].vector == [struct.unpack("<f", struct.pack("<f", 0.1))[0], -2]


def test_a_failed_text_is_named() -> None:
    exchange = read(record, PATH, model="m", input=["a", "b"])
    exchange.ask()
    with pytest.raises(EngineFailed) as failure:
        exchange.body(HEADING, [Failed(1, EngineFailed())], Work())
    assert failure.value.param == "input.1"
    with pytest.raises(InvalidRequest) as refusal:
        exchange.body(HEADING, [Failed(1, InvalidRequest("no", param="dimensions"))], Work())
    assert refusal.value.param == "dimensions"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_never_gets_out(bad: float) -> None:
    with pytest.raises(EngineFailed) as failure:
        body(vector(0, 1), vector(0, bad), input=["a", "b"])
    assert failure.value.param == "input.1"


def test_nothing_is_streamed() -> None:
    with pytest.raises(UnsupportedParameter):
        read(record, PATH, model="m", input="a").stream(HEADING)


async def test_over_http() -> None:
    backend = scripted(record, vector(0.5, 0.5))
    app = app_over(record, backend)
    status, found = await post(app, PATH, model="pond", input="a")
    assert (status, found["data"][0]["embedding"]) == (200, [0.5, 0.5])
    status, refusal = await post(app, PATH, model="pond", input=["a", ""])
    assert (status, refusal["error"]["param"]) == (400, "input.1")
    assert refusal["error"]["type"] == "invalid_request_error"
    assert len(backend.calls) == 1


async def test_a_failed_item_over_http() -> None:
    backend = scripted_events(record, [Failed(0, EngineFailed()), Ended(Work())])
    status, found = await post(app_over(record, backend), PATH, model="pond", input=["a"])
    assert (status, found["error"]["param"]) == (500, "input.0")
