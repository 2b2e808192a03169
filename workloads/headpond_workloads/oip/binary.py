"""Binary data: what follows the JSON of a request or of an answer, one tensor after another."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headpond.errors import InvalidRequest
from headpond_workloads.oip.datatypes import Datatype, split_elements
from headpond_workloads.oip.tensor import Tensor

LENGTH_HEADER = "inference-header-content-length"
"""The header with the bytes of the JSON, in requests and answers that go on after it."""

BINARY_TYPE = "application/octet-stream"

_MAX_DIGITS = 15
_BOOLEANS = b"\x00\x01"


def json_bytes(body: bytes, declared: str | None) -> int:
    """Return how many bytes of a body are its JSON: all of them, unless the header tells.

    Raises:
        InvalidRequest: The header is no number from 1 to the length of the body.
    """
    if declared is None:
        return len(body)
    if not (declared.isascii() and declared.isdigit() and len(declared) <= _MAX_DIGITS):
        raise InvalidRequest("must be a whole number of bytes", param=LENGTH_HEADER)
    length = int(declared)
    if length == 0:
        raise InvalidRequest(
            "must be above 0: a tensor cannot be sent without its JSON", param=LENGTH_HEADER
        )
    if length > len(body):
        raise InvalidRequest(f"is {length}, but the body has {len(body)}", param=LENGTH_HEADER)
    return length


def from_binary(name: str, datatype: Datatype, shape: Sequence[int], data: bytes) -> Tensor:
    """Return the tensor that binary data is.

    Raises:
        ValueError: The data is not what datatype and shape say.
    """
    count = math.prod(shape)
    if datatype is Datatype.BYTES:
        split_elements(data, count)
    elif len(data) != count * datatype.width_bytes:
        needed = count * datatype.width_bytes
        raise ValueError(f"must hold {needed} bytes, as the shape says, not {len(data)}")
    if datatype is Datatype.BOOL and data.translate(None, _BOOLEANS):
        raise ValueError("must hold bytes of 0 or 1 for BOOL")
    return Tensor(name=name, datatype=datatype, shape=tuple(shape), data=data)
