"""Wire types of the Open Inference Protocol v2, with Triton's binary data.

Unknown fields are ignored, explicit null is the same as absent, and numbers and booleans
are never read from strings or from one another.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headpond_workloads.oip.datatypes import Datatype

MODEL_PATH = "/v2/models/{model}"
VERSION_PATH = f"{MODEL_PATH}/versions/{{version}}"

MAX_TENSORS = 64
MAX_AXES = 16

Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=128)]
Shape = Annotated[tuple[Count, ...], Field(fail_fast=True, max_length=MAX_AXES)]


def _absent(value: object) -> bool:
    return value is None


class InputParameters(BaseModel):
    """How the data of an input travels."""

    model_config = ConfigDict(frozen=True)

    binary_data_size: Annotated[int, Field(strict=True, ge=0)] | None = Field(
        default=None, description="Bytes that the input has after the JSON, instead of `data`."
    )
    shared_memory_region: str | None = Field(default=None, description="Refused.")


class InferInput(BaseModel):
    """One input tensor: with `data`, or with `parameters.binary_data_size`."""

    model_config = ConfigDict(frozen=True)

    name: Name
    shape: Shape
    datatype: Datatype
    parameters: InputParameters | None = None
    data: list[object] | None = Field(
        default=None,
        description="The entries in row-major order, flat or nested as the shape says.",
    )


class OutputParameters(BaseModel):
    """How an output is wanted."""

    model_config = ConfigDict(frozen=True)

    binary_data: Flag | None = Field(
        default=None, description="Whether it follows the JSON as bytes."
    )
    classification: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="The most entries wanted of each row, the greatest first."
    )
    shared_memory_region: str | None = Field(default=None, description="Refused.")


class RequestedOutput(BaseModel):
    """One output that is wanted."""

    model_config = ConfigDict(frozen=True)

    name: Name
    parameters: OutputParameters | None = None


class RequestParameters(BaseModel):
    """What a request says besides its tensors; what nobody knows here is the workload's."""

    model_config = ConfigDict(frozen=True, extra="allow")

    __pydantic_extra__: dict[str, JsonValue]

    binary_data_output: Flag | None = Field(
        default=None, description="Whether outputs follow the JSON as bytes (false)."
    )


class InferRequest(BaseModel):
    """The body of `POST .../infer`, or its part before the binary data."""

    model_config = ConfigDict(frozen=True)

    id: str | None = Field(default=None, max_length=1024, description="Echoed.")
    parameters: RequestParameters | None = None
    inputs: Annotated[
        tuple[InferInput, ...], Field(fail_fast=True, min_length=1, max_length=MAX_TENSORS)
    ]
    outputs: (
        Annotated[tuple[RequestedOutput, ...], Field(fail_fast=True, max_length=MAX_TENSORS)] | None
    ) = Field(default=None, description="The outputs wanted, in this order; all by default.")


class BinaryData(BaseModel):
    """Where the data of an output is."""

    binary_data_size: int


class InferOutput(BaseModel):
    """One output tensor; the flat data in row-major order, or its size after the JSON."""

    name: str
    shape: tuple[int, ...]
    datatype: Datatype
    parameters: BinaryData | None = Field(default=None, exclude_if=_absent)
    data: list[object] | None = Field(default=None, exclude_if=_absent)


class InferResponse(BaseModel):
    """The answer, or its part before the binary data."""

    model_name: str
    model_version: str
    id: str | None = Field(default=None, exclude_if=_absent)
    outputs: list[InferOutput]


class TensorMetadata(BaseModel):
    """What an input or an output looks like; -1 is an axis of any length."""

    model_config = ConfigDict(frozen=True)

    name: str
    datatype: Datatype
    shape: tuple[int, ...]


class ModelMetadata(BaseModel):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


class ModelReady(BaseModel):
    """Whether a model can serve; one that can't has an error instead."""

    name: str
    ready: bool


class ConfigTensor(BaseModel):
    """An input or an output in Triton's own words."""

    name: str
    data_type: str
    dims: tuple[int, ...]


class ModelConfig(BaseModel):
    """What a model takes and gives, as Triton's extension of the protocol tells it.

    `max_batch_size` is 0, which means that `dims` are whole shapes, the batch among them.
    """

    name: str
    platform: str
    max_batch_size: int = 0
    input: list[ConfigTensor]
    output: list[ConfigTensor]
