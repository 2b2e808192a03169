"""An answer's tensors on the wire: JSON, or JSON and the binary data that follows it."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.dialect import Raw
from headpond.errors import EngineFailed, InvalidRequest
from headpond_workloads.oip.adapter import WantedOutput
from headpond_workloads.oip.binary import BINARY_TYPE, LENGTH_HEADER
from headpond_workloads.oip.classification import classify
from headpond_workloads.oip.naming import Served
from headpond_workloads.oip.schema import BinaryData, InferOutput, InferResponse
from headpond_workloads.oip.tensor import Tensor
from headpond_workloads.oip.tensor_json import to_json


def write_answer(
    served: Served,
    request_id: str | None,
    tensors: Sequence[Tensor],
    wanted: Sequence[WantedOutput],
) -> InferResponse | Raw:
    """Return the outputs that are wanted, in their order.

    Args:
        served: The model that answered.
        request_id: The caller's own; left out when there is none.
        tensors: What the model gave.
        wanted: The outputs, and how each travels.

    Raises:
        InvalidRequest: An output can't be given as it is wanted; names it.
        EngineFailed: The model gave no such output.
    """
    given = {tensor.name: tensor for tensor in tensors}
    outputs: list[InferOutput] = []
    binary: list[bytes] = []
    for want in wanted:
        if want.name not in given:
            raise EngineFailed(f"The model gave no output `{want.name}`.")
        tensor = _as_wanted(given[want.name], want)
        outputs.append(_output(tensor, want))
        if want.is_binary:
            binary.append(tensor.data)
    response = InferResponse(
        model_name=served.name,
        model_version=served.version,
        id=request_id,
        outputs=outputs,
    )
    if not binary:
        return response
    head = response.model_dump_json().encode()
    return Raw(
        content=b"".join([head, *binary]),
        media_type=BINARY_TYPE,
        headers=((LENGTH_HEADER, str(len(head))),),
    )


def _as_wanted(tensor: Tensor, want: WantedOutput) -> Tensor:
    if want.classification is None:
        return tensor
    try:
        return classify(tensor, want.classification)
    except ValueError as error:
        param = f"outputs.{want.name}.parameters.classification"
        raise InvalidRequest(str(error), param=param) from None


def _output(tensor: Tensor, want: WantedOutput) -> InferOutput:
    data: list[object] | None = None
    if not want.is_binary:
        try:
            data = to_json(tensor)
        except ValueError as error:
            param = f"outputs.{want.name}.parameters.binary_data"
            raise InvalidRequest(str(error), param=param) from None
    return InferOutput(
        name=tensor.name,
        shape=tensor.shape,
        datatype=tensor.datatype,
        parameters=BinaryData(binary_data_size=len(tensor.data)) if want.is_binary else None,
        data=data,
    )
