"""Vision over the Open Inference Protocol."""

from __future__ import annotations

import json
import struct

import pytest

from exchanges import HEADING, events
from headpond.dialect import Exchange, Incoming, rendered
from headpond.engine import Json
from headpond.errors import InvalidRequest
from headpond.units import Work
from headpond_workloads.images.decoder import decode
from headpond_workloads.vision.items import (
    DescribeItem,
    Description,
    ImageItem,
    Logits,
    TensorItem,
)
from headpond_workloads.vision.record import record

PATH = {"model": "eyes"}
INFER = "/v2/models/{model}/infer"


def infer(shape: list[int], data: Json, datatype: str) -> Exchange:
    (route,) = [each for each in record.routes if each.path == INFER]
    tensor = {"name": "image", "shape": shape, "datatype": datatype, "data": data}
    return route.read(Incoming(body=json.dumps({"inputs": [tensor]}).encode(), path=PATH))


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_encoded_images_become_items_and_logits_rows(shape: list[int]) -> None:
    exchange = infer(shape, ["GIF one", "GIF two"], "BYTES")
    assert exchange.ask().items == tuple(
        ImageItem(data=data, selection=None, param=f"inputs.image.data.{at}")
        for at, data in enumerate((b"GIF one", b"GIF two"))
    )
    given = [Logits(values=struct.pack("<3f", at, 0.5, -2.0)) for at in range(2)]
    body = json.loads(rendered(exchange.body(HEADING, events(*given), Work())).content)
    assert body["outputs"] == [
        {
            "name": "logits",
            "shape": [2, 3],
            "datatype": "FP32",
            "data": [0.0, 0.5, -2.0, 1.0, 0.5, -2.0],
        }
    ]


def test_classes_have_labels() -> None:
    (route,) = [each for each in record.routes if each.path == INFER]
    body = {
        "inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": ["GIF"]}],
        "outputs": [{"name": "logits", "parameters": {"classification": 2}}],
    }
    exchange = route.read(Incoming(body=json.dumps(body).encode(), path=PATH))
    (item,) = exchange.ask().items
    assert isinstance(item, ImageItem)
    assert item.labelled
    given = Logits(values=struct.pack("<3f", 0.5, 2.0, -1.0), labels=("ant", "bee", "cat"))
    answer = json.loads(rendered(exchange.body(HEADING, events(given), Work())).content)
    assert answer["outputs"][0]["data"] == ["2:1:bee", "0.5:0:ant"]


@pytest.mark.parametrize(
    ("datatype", "dtype", "form"), [("UINT8", "uint8", "12B"), ("FP32", "float32", "<12f")]
)
def test_pixels_and_normalised_values_become_items(datatype: str, dtype: str, form: str) -> None:
    values: list[Json] = list(range(24))
    items = infer([2, 2, 2, 3], values, datatype).ask().items
    assert len(items) == 2
    for at, item in enumerate(items):
        assert isinstance(item, TensorItem)
        assert (item.shape, item.dtype, item.selection) == ((2, 2, 3), dtype, None)
        assert struct.unpack(form, item.data) == tuple(range(12 * at, 12 * at + 12))


@pytest.mark.parametrize(
    ("shape", "data", "datatype", "says"),
    [
        ([2, 2], ["a", "b", "c", "d"], "BYTES", "shape"),
        ([1], [1], "INT32", "BYTES or UINT8 or FP32"),
        ([0], [], "BYTES", "at least one row"),
        ([], ["a"], "BYTES", "begin with the number of rows"),
        ([65, 1, 3], [0] * 195, "UINT8", r"n, height, width, 3.*n is 1 for one image"),
        ([3], [0.5] * 3, "FP32", "n is 1 for one image"),
    ],
)
def test_other_tensors_are_refused(
    shape: list[int], data: list[Json], datatype: str, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        infer(shape, data, datatype).ask()


def test_a_model_says_what_it_takes() -> None:
    (route,) = [each for each in record.routes if each.path == "/v2/models/{model}"]
    exchange = route.read(Incoming(path=PATH))
    assert exchange.ask().items == (DescribeItem(),)
    description = Description(
        model="eyes@1.0.0",
        digest="d" * 64,
        dtype="float32",
        input_height=224,
        input_width=192,
        labels=("cat", "dog"),
        max_pixels=1000,
        max_batch_images=4,
    )
    body = json.loads(rendered(exchange.body(HEADING, events(description), Work())).content)
    assert body["inputs"] == [{"name": "image", "datatype": "UINT8", "shape": [-1, 224, 192, 3]}]
    assert body["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 2]}]


def test_the_example_is_an_image() -> None:
    (route,) = [each for each in record.routes if each.path == INFER]
    exchange = route.read(Incoming(body=json.dumps(dict(route.example)).encode(), path=PATH))
    (item,) = exchange.ask().items
    assert isinstance(item, ImageItem)
    assert decode(item.data, max_pixels=1, needed=1, param="image").pixels == 1
