"""Weights of linear layers as packed matrices; the formats are in `products.hpp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from headpond_workloads.native.library import packing
from headpond_workloads.native.memory import zeros
from headpond_workloads.native.structures import Matrix

TILE = 32
GROUP = 32

_ROWS_AT_ONCE = 4096
"""Columns that are converted to float32 at a time, so that no whole float32 copy is made."""


class Format(IntEnum):
    """How weights are kept, by the numbers of `products.hpp`."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    INT4 = 3


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A packed matrix, and the tensors that its pointers point into.

    Attributes:
        matrix: What the library is given.
        tensors: Kept alive.
    """

    matrix: Matrix
    tensors: tuple[Tensor, ...]


def pack(parts: Sequence[Tensor], kind: Format, biases: Sequence[Tensor | None] = ()) -> Packed:
    """Pack linear layers of one input, stacked, as one matrix.

    Args:
        parts: Weights of shape [columns, depth]; the depth is a multiple of 32.
        kind: The format.
        biases: One for each part, when any has one.

    Raises:
        ValueError: The depth is no multiple of 32.
        MemoryError: There is not enough.
    """
    depth = parts[0].shape[1]
    if depth % GROUP:
        raise ValueError(f"a depth of {depth} is no multiple of {GROUP}")
    columns = sum(part.shape[0] for part in parts)
    native = packing()
    values = zeros(native.headpond_packed_bytes(kind, columns, depth))
    scales, least = _scales(kind, -(-columns // TILE), depth // GROUP)
    first = 0
    for part in parts:
        for begin in range(0, len(part), _ROWS_AT_ONCE):
            whole = part[begin : begin + _ROWS_AT_ONCE].float().contiguous()
            native.headpond_pack(
                kind,
                whole.data_ptr(),
                first,
                len(whole),
                depth,
                values.data_ptr(),
                scales.data_ptr(),
                least.data_ptr(),
            )
            first += len(whole)
    bias = _stacked(parts, biases)
    matrix = Matrix(
        kind,
        columns,
        depth,
        values.data_ptr(),
        scales.data_ptr(),
        least.data_ptr(),
        None if bias is None else bias.data_ptr(),
    )
    kept = (values, scales, least) if bias is None else (values, scales, least, bias)
    return Packed(matrix=matrix, tensors=kept)


def _scales(kind: Format, tiles: int, groups: int) -> tuple[Tensor, Tensor]:
    """Return room for a format's scales, and for its groups' least values."""
    none = torch.zeros(0)
    if kind is Format.INT8:
        return torch.zeros(tiles * TILE), none
    if kind is Format.INT4:
        shape = tiles * groups * TILE
        return torch.zeros(shape, dtype=torch.float16), torch.zeros(shape, dtype=torch.float16)
    return none, none


def _stacked(parts: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Tensor | None:
    if all(bias is None for bias in biases):
        return None
    filled = [
        torch.zeros(part.shape[0]) if bias is None else bias.float()
        for part, bias in zip(parts, biases, strict=True)
    ]
    return torch.cat(filled).contiguous()
