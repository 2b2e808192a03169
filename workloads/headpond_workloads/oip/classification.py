"""Triton's classification: the greatest entries of each row of an output, as texts."""

from __future__ import annotations

import math
from heapq import nsmallest

from headpond_workloads.oip.datatypes import Datatype, Number
from headpond_workloads.oip.tensor import Tensor

_DIGITS = {Datatype.FP16: 5, Datatype.BF16: 4, Datatype.FP32: 9}
"""As many as tell all values apart; Python shows those of its own floats, which are FP64."""


def classify(tensor: Tensor, most: int) -> Tensor:
    """Return `value:index` or `value:index:label` of the greatest entries, as BYTES.

    Args:
        tensor: Numbers; its first axis is the batch, unless it is the only one.
        most: The most entries of a row.

    Returns:
        A tensor of shape `[rows, k]`, or `[k]` where there is only one axis; `k` is `most`,
        or all there are.

    Raises:
        ValueError: The entries have no order.
    """
    if tensor.datatype in (Datatype.BYTES, Datatype.BOOL):
        raise ValueError(f"entries of {tensor.datatype} cannot be classes")
    batch = tensor.shape[:1] if len(tensor.shape) > 1 else ()
    width = math.prod(tensor.shape[len(batch) :])
    kept = min(most, width)
    numbers = tensor.numbers()
    rows = [numbers[row * width : (row + 1) * width] for row in range(math.prod(batch))]
    classes = [_class(tensor, row[index], index) for row in rows for index in _greatest(row, kept)]
    return Tensor.of_elements(tensor.name, (*batch, kept), classes)


def _greatest(row: tuple[Number, ...], count: int) -> list[int]:
    """Return the indices of the greatest; of equals the first comes first, NaN comes last."""

    def order(index: int) -> tuple[bool, Number]:
        unknown = math.isnan(row[index])
        return unknown, 0 if unknown else -row[index]

    return nsmallest(count, range(len(row)), key=order)


def _class(tensor: Tensor, value: Number, index: int) -> bytes:
    digits = _DIGITS.get(tensor.datatype)
    text = f"{value:.{digits}g}:{index}" if digits is not None else f"{value}:{index}"
    return (f"{text}:{tensor.labels[index]}" if index < len(tensor.labels) else text).encode()
