"""Images and logits as tensors, for callers of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.errors import InvalidRequest
from headpond_workloads.oip.adapter import TensorAdapter, TensorModel, TensorRequest
from headpond_workloads.oip.datatypes import Datatype
from headpond_workloads.oip.schema import TensorMetadata
from headpond_workloads.oip.tensor import Tensor
from headpond_workloads.vision.items import (
    DescribeItem,
    Description,
    ImageItem,
    Logits,
    TensorItem,
    TensorType,
    VisionItem,
)
from headpond_workloads.vision.schema import MAX_IMAGES

INPUT, OUTPUT = "image", "logits"
"""What callers call them, whatever a model's own graph does."""

_DTYPES: dict[Datatype, TensorType] = {Datatype.UINT8: "uint8", Datatype.FP32: "float32"}
_FLOAT_BYTES = 4
_AXES = 4
_SMALLEST_GIF = "GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
"""One grey pixel in bytes that are ASCII, so that JSON can hold them."""


def to_items(request: TensorRequest) -> list[VisionItem]:
    """Return one item for each image: encoded ones as BYTES, or pixels, or normalised values.

    Raises:
        InvalidRequest: The tensor is none of these; names it.
    """
    tensor = request.input(INPUT, Datatype.BYTES, *_DTYPES)
    if tensor.datatype is not Datatype.BYTES and len(tensor.shape) != _AXES:
        raise InvalidRequest(
            "must be [n, height, width, 3] or [n, 3, height, width]; n is 1 for one image",
            param=f"inputs.{INPUT}.shape",
        )
    rows = tensor.rows(MAX_IMAGES)
    labelled = any(output.classification is not None for output in request.outputs)
    if tensor.datatype is not Datatype.BYTES:
        dtype, param = _DTYPES[tensor.datatype], f"inputs.{INPUT}"
        return [
            TensorItem(shape=row.shape, dtype=dtype, data=row.data, labelled=labelled, param=param)
            for row in rows
        ]
    if tensor.shape[1:] not in ((), (1,)):
        raise InvalidRequest("must have the shape [n] or [n, 1]", param=f"inputs.{INPUT}.shape")
    return [
        ImageItem(
            data=row.elements()[0],
            selection=None,
            labelled=labelled,
            param=f"inputs.{INPUT}.data.{at}",
        )
        for at, row in enumerate(rows)
    ]


def from_outputs(request: TensorRequest, outputs: Sequence[Sequence[object]]) -> list[Tensor]:
    """Return the logits, one row for each image."""
    del request
    found = [payload for (payload,) in outputs if isinstance(payload, Logits)]
    return [
        Tensor(
            name=OUTPUT,
            datatype=Datatype.FP32,
            shape=(len(found), len(found[0].values) // _FLOAT_BYTES),
            data=b"".join(each.values for each in found),
            labels=found[0].labels,
        )
    ]


def describe(payload: object) -> TensorModel:
    """Return the tensors of a model.

    Raises:
        TypeError: The engine described something else.
    """
    if not isinstance(payload, Description):
        raise TypeError(f"a model is described by no {type(payload).__name__}")
    shape = (-1, payload.input_height, payload.input_width, 3)
    return TensorModel(
        platform="headpond_vision",
        inputs=(TensorMetadata(name=INPUT, datatype=Datatype.UINT8, shape=shape),),
        outputs=(
            TensorMetadata(name=OUTPUT, datatype=Datatype.FP32, shape=(-1, len(payload.labels))),
        ),
    )


adapter = TensorAdapter(
    inputs=(INPUT,),
    outputs=(OUTPUT,),
    to_items=to_items,
    from_outputs=from_outputs,
    about=DescribeItem(),
    describe=describe,
    example={
        "inputs": [{"name": INPUT, "shape": [1], "datatype": "BYTES", "data": [_SMALLEST_GIF]}]
    },
)
