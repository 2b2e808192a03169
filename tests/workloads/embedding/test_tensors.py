"""Embedding over the Open Inference Protocol."""

from __future__ import annotations

import json
import struct

import pytest

from exchanges import HEADING, events
from headpond.dialect import Exchange, Incoming, rendered
from headpond.engine import Json
from headpond.errors import InvalidRequest
from headpond.units import Work
from headpond_workloads.embedding.items import Description, Embedding, EmbedItem, Truncation
from headpond_workloads.embedding.record import record
from headpond_workloads.encoders.items import DescribeItem

PATH = {"model": "pond"}


def infer(shape: list[int], data: Json, datatype: str = "BYTES") -> Exchange:
    (route,) = [each for each in record.routes if each.path == "/v2/models/{model}/infer"]
    tensor = {"name": "text", "shape": shape, "datatype": datatype, "data": data}
    return route.read(Incoming(body=json.dumps({"inputs": [tensor]}).encode(), path=PATH))


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_texts_become_items_and_vectors_rows(shape: list[int]) -> None:
    exchange = infer(shape, ["a", "ö"])
    ask = exchange.ask()
    assert ask.model == "pond"
    assert ask.items == tuple(
        EmbedItem(text=text, truncation=Truncation.NONE, param=f"inputs.text.data.{at}")
        for at, text in enumerate("aö")
    )
    given = [
        Embedding(vectors=struct.pack("<2f", at, 0.5), dimensions=2, tokens=3) for at in range(2)
    ]
    body = json.loads(rendered(exchange.body(HEADING, events(*given), Work())).content)
    assert body["outputs"] == [
        {"name": "embedding", "shape": [2, 2], "datatype": "FP32", "data": [0.0, 0.5, 1.0, 0.5]}
    ]


@pytest.mark.parametrize(
    ("shape", "data", "datatype", "says"),
    [
        ([2, 2], ["a", "b", "c", "d"], "BYTES", "shape"),
        ([1], [1.0], "FP32", "BYTES"),
        ([0], [], "BYTES", "at least one row"),
        ([], ["a"], "BYTES", "begin with the number of rows"),
        ([2], ["a", ""], "BYTES", "must not be empty"),
    ],
)
def test_other_tensors_are_refused(
    shape: list[int], data: list[Json], datatype: str, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        infer(shape, data, datatype).ask()


def test_dimensions_are_a_parameter() -> None:
    (route,) = [each for each in record.routes if each.path == "/v2/models/{model}/infer"]
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}

    def items(dimensions: Json) -> tuple[object, ...]:
        body = {"inputs": [tensor], "parameters": {"dimensions": dimensions}}
        return route.read(Incoming(body=json.dumps(body).encode(), path=PATH)).ask().items

    (item,) = items(4)
    assert isinstance(item, EmbedItem)
    assert item.dimensions == 4
    wrongs: tuple[Json, ...] = ("4", True, [4])
    for wrong in wrongs:
        with pytest.raises(InvalidRequest) as refused:
            items(wrong)
        assert refused.value.param == "parameters.dimensions"


def test_a_model_shows_its_tensors() -> None:
    (route,) = [each for each in record.routes if each.path == "/v2/models/{model}"]
    exchange = route.read(Incoming(path=PATH))
    assert exchange.ask().items == (DescribeItem(),)
    description = Description(
        model="m@1",
        digest="d",
        dtype="bfloat16",
        pooling="mean",
        dimensions=384,
        max_tokens=256,
        max_batch_tokens=32,
    )
    body = json.loads(rendered(exchange.body(HEADING, events(description), Work())).content)
    assert body["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert body["outputs"] == [{"name": "embedding", "datatype": "FP32", "shape": [-1, 384]}]
