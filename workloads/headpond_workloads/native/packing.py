"""Weights of linear layers as packed matrices; the formats are in `products.hpp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from headpond_workloads.native.library import packing
from headpond_workloads.native.memory import Arena
from headpond_workloads.native.structures import Matrix

TILE = 32
GROUP = 32

Weights = NDArray[np.generic]
"""Floats of any kind, bfloat16 (of ml_dtypes) among them."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
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
    """A packed matrix, and the arrays that its pointers point into.

    Attributes:
        matrix: What the library is given.
        arrays: Kept alive.
    """

    matrix: Matrix
    arrays: tuple[Weights, ...]


def pack(
    parts: Sequence[Weights],
    kind: Format,
    biases: Sequence[Weights | None] = (),
    *,
    arena: Arena,
) -> Packed:
    """Pack linear layers of one input, stacked, as one matrix.

    Args:
        parts: Weights of shape [columns, depth]; the depth is a multiple of 32.
        kind: The format.
        biases: One for each part, when any has one.
        arena: Where the packed values go.

    Raises:
        ValueError: The depth is no multiple of 32.
        MemoryError: There is not enough.
    """
    depth = parts[0].shape[1]
    if depth % GROUP:
        raise ValueError(f"a depth of {depth} is no multiple of {GROUP}")
    columns = sum(part.shape[0] for part in parts)
    native = packing()
    values = arena.zeros(native.headpond_packed_bytes(kind, columns, depth))
    scales, least = _scales(kind, -(-columns // TILE), depth // GROUP)
    first = 0
    for part in parts:
        for begin in range(0, len(part), _ROWS_AT_ONCE):
            whole = float32(part[begin : begin + _ROWS_AT_ONCE])
            native.headpond_pack(
                kind,
                whole.ctypes.data,
                first,
                len(whole),
                depth,
                values.ctypes.data,
                scales.ctypes.data,
                least.ctypes.data,
            )
            first += len(whole)
    bias = _stacked(parts, biases)
    matrix = Matrix(
        kind,
        columns,
        depth,
        values.ctypes.data,
        scales.ctypes.data,
        least.ctypes.data,
        None if bias is None else bias.ctypes.data,
    )
    kept = (values, scales, least) if bias is None else (values, scales, least, bias)
    return Packed(matrix=matrix, arrays=kept)


def float32(weights: Weights) -> NDArray[np.float32]:
    """Return weights in float32, contiguous."""
    if weights.dtype == _BFLOAT16:  # many times faster than by ml_dtypes' own conversion
        wide = np.ascontiguousarray(weights).view(np.uint16).astype(np.uint32)
        return np.left_shift(wide, 16, out=wide).view(np.float32)
    return np.ascontiguousarray(weights, dtype=np.float32)


def _scales(kind: Format, tiles: int, groups: int) -> tuple[Weights, Weights]:
    """Return room for a format's scales, and for its groups' least values."""
    none = np.zeros(0, dtype=np.float32)
    if kind is Format.INT8:
        return np.zeros(tiles * TILE, dtype=np.float32), none
    if kind is Format.INT4:
        shape = tiles * groups * TILE
        return np.zeros(shape, dtype=np.float16), np.zeros(shape, dtype=np.float16)
    return none, none


def _stacked(
    parts: Sequence[Weights], biases: Sequence[Weights | None]
) -> NDArray[np.float32] | None:
    if all(bias is None for bias in biases):
        return None
    filled = [
        np.zeros(part.shape[0], dtype=np.float32) if bias is None else float32(bias)
        for part, bias in zip(parts, biases, strict=True)
    ]
    return np.concatenate(filled)
