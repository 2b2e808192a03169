"""A request's body as tensors: JSON, or JSON and the binary data that follows it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from headpond.dialect import Incoming
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.http.errors import invalid_request
from headpond_workloads.oip.adapter import TensorRequest, WantedOutput
from headpond_workloads.oip.binary import LENGTH_HEADER, from_binary, json_bytes
from headpond_workloads.oip.datatypes import Datatype
from headpond_workloads.oip.schema import (
    InferInput,
    InferRequest,
    OutputParameters,
    RequestedOutput,
)
from headpond_workloads.oip.tensor import Tensor
from headpond_workloads.oip.tensor_json import from_json

MAX_ENTRIES = 2**31 - 1
"""What a shape may declare, empty axes left out; far more than fits into a body."""

MAX_ELEMENTS = 2**16
"""The most entries of a BYTES tensor, as each costs the time of a thousand numbers."""


def read_wire(incoming: Incoming) -> tuple[InferRequest, bytes]:
    """Return a request's JSON, and the binary data after it.

    Raises:
        InvalidRequest: The JSON is not a request; names the field.
    """
    length = json_bytes(incoming.body, incoming.header(LENGTH_HEADER))
    head = incoming.body[:length]
    try:
        return InferRequest.model_validate_json(head), incoming.body[length:]
    except ValidationError as error:
        raise invalid_request(error, head) from None


def read_tensors(
    request: InferRequest, binary: bytes, *, inputs: Sequence[str], outputs: Sequence[str]
) -> TensorRequest:
    """Return a request with its tensors.

    Args:
        request: The JSON.
        binary: What follows it.
        inputs: The names that inputs may have.
        outputs: The names of all outputs; each is wanted when the request says nothing.

    Raises:
        InvalidRequest: A tensor is not what its shape says, or a name is unknown; names it.
    """
    _check_names("inputs", [each.name for each in request.inputs], inputs)
    parameters = request.parameters
    wanted = request.outputs or [RequestedOutput(name=name) for name in outputs]
    _check_names("outputs", [each.name for each in wanted], outputs)
    by_default = parameters is not None and parameters.binary_data_output is True
    return TensorRequest(
        inputs=_tensors(request.inputs, binary),
        outputs=tuple(_wanted(each, by_default=by_default) for each in wanted),
        parameters=(parameters.model_extra or {}) if parameters is not None else {},
    )


def _check_names(param: str, names: Sequence[str], known: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidRequest("comes more than once", param=f"{param}.{repeated[0]}")
    unknown = [name for name in names if name not in known]
    if unknown:
        listed = ", ".join(f"`{name}`" for name in known)
        raise InvalidRequest(
            f"is none of this model's {param}: {listed}", param=f"{param}.{unknown[0]}"
        )


def _tensors(inputs: Sequence[InferInput], binary: bytes) -> dict[str, Tensor]:
    tensors = {}
    at = 0
    for given in inputs:
        size = given.parameters.binary_data_size if given.parameters is not None else None
        data = binary[at : at + size] if size is not None else None
        if data is not None and len(data) != size:
            raise InvalidRequest(
                f"is {size}, but {len(data)} bytes are left after the JSON",
                param=f"inputs.{given.name}.parameters.binary_data_size",
            )
        tensors[given.name] = _tensor(given, data)
        at += size or 0
    if at != len(binary):
        raise InvalidRequest(
            f"{len(binary) - at} bytes after the JSON belong to no input", param="inputs"
        )
    return tensors


def _tensor(given: InferInput, binary: bytes | None) -> Tensor:
    param = f"inputs.{given.name}"
    if given.parameters is not None and given.parameters.shared_memory_region is not None:
        raise UnsupportedParameter(
            "shared memory is not supported", param=f"{param}.parameters.shared_memory_region"
        )
    _check_shape(given, f"{param}.shape")
    name, datatype, shape = given.name, given.datatype, given.shape
    if (given.data is None) == (binary is None):
        raise InvalidRequest(
            "must be there, or else parameters.binary_data_size; not both", param=f"{param}.data"
        )
    try:
        if binary is not None:
            return from_binary(name, datatype, shape, binary)
        return from_json(name, datatype, shape, given.data or ())
    except ValueError as error:
        raise InvalidRequest(str(error), param=f"{param}.data") from None


def _check_shape(given: InferInput, param: str) -> None:
    if any(length < 0 for length in given.shape):
        raise InvalidRequest("must hold no negative number", param=param)
    if math.prod(length or 1 for length in given.shape) > MAX_ENTRIES:
        raise InvalidRequest("declares more entries than a request can hold", param=param)
    if given.datatype is Datatype.BYTES and math.prod(given.shape) > MAX_ELEMENTS:
        raise InvalidRequest(f"declares more than {MAX_ELEMENTS} entries of BYTES", param=param)


def _wanted(given: RequestedOutput, *, by_default: bool) -> WantedOutput:
    parameters = given.parameters or OutputParameters()
    if parameters.shared_memory_region is not None:
        raise UnsupportedParameter(
            "shared memory is not supported",
            param=f"outputs.{given.name}.parameters.shared_memory_region",
        )
    binary = parameters.binary_data
    return WantedOutput(
        name=given.name,
        is_binary=by_default if binary is None else binary,
        classification=parameters.classification,
    )
