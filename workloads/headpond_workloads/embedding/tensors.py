"""Texts and vectors as tensors, for callers of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from headpond.errors import InvalidRequest
from headpond_workloads.embedding.items import Description, Embedding, EmbedItem, Truncation
from headpond_workloads.encoders.errors import EmptyInput
from headpond_workloads.encoders.items import DescribeItem
from headpond_workloads.encoders.schema_fields import MAX_INPUTS
from headpond_workloads.oip.adapter import TensorAdapter, TensorModel, TensorRequest
from headpond_workloads.oip.datatypes import Datatype
from headpond_workloads.oip.schema import TensorMetadata
from headpond_workloads.oip.tensor import Tensor

_TEXT, _VECTOR = "text", "embedding"


def to_items(request: TensorRequest) -> list[EmbedItem]:
    """Return one item for each text; too long ones are refused.

    The request's parameter `dimensions` means what it does in OpenAI's dialect.

    Raises:
        InvalidRequest: The tensor is none of texts; names it.
    """
    tensor = request.input(_TEXT, Datatype.BYTES)
    if len(tensor.shape) > 2 or tensor.shape[1:] not in ((), (1,)):
        raise InvalidRequest("must have the shape [n] or [n, 1]", param=f"inputs.{_TEXT}.shape")
    elements = [row.elements()[0] for row in tensor.rows(MAX_INPUTS)]
    dimensions = _dimensions(request.parameters.get("dimensions"))
    return [
        EmbedItem(
            text=_text(element, at),
            truncation=Truncation.NONE,
            dimensions=dimensions,
            param=f"inputs.{_TEXT}.data.{at}",
        )
        for at, element in enumerate(elements)
    ]


def from_outputs(request: TensorRequest, outputs: Sequence[Sequence[object]]) -> list[Tensor]:
    """Return the vectors, one row for each text."""
    del request
    found = [payload for (payload,) in outputs if isinstance(payload, Embedding)]
    return [
        Tensor(
            name=_VECTOR,
            datatype=Datatype.FP32,
            shape=(len(found), found[0].dimensions),
            data=b"".join(embedding.vectors for embedding in found),
        )
    ]


def describe(payload: object) -> TensorModel:
    """Return the tensors of a model.

    Raises:
        TypeError: The engine described something else.
    """
    if not isinstance(payload, Description):
        raise TypeError(f"a model is described by no {type(payload).__name__}")
    return TensorModel(
        platform="headpond_embedding",
        inputs=(TensorMetadata(name=_TEXT, datatype=Datatype.BYTES, shape=(-1,)),),
        outputs=(
            TensorMetadata(name=_VECTOR, datatype=Datatype.FP32, shape=(-1, payload.dimensions)),
        ),
    )


def _text(element: bytes, at: int) -> str:
    param = f"inputs.{_TEXT}.data.{at}"
    if not element:
        raise EmptyInput("must not be empty", param=param)
    try:
        return element.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("is no UTF-8", param=param) from None


def _dimensions(given: JsonValue) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise InvalidRequest("must be a whole number", param="parameters.dimensions")


adapter = TensorAdapter(
    inputs=(_TEXT,),
    outputs=(_VECTOR,),
    to_items=to_items,
    from_outputs=from_outputs,
    about=DescribeItem(),
    describe=describe,
    example={
        "inputs": [{"name": _TEXT, "shape": [1], "datatype": "BYTES", "data": ["The wheel turns."]}]
    },
)
