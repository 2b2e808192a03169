"""Vectors in fewer bits, as Cohere's `embedding_types` name them.

The rules depend on nothing but the vector, so that vectors of different calls, and of
different types of one call, go together:

- `int8`: each value of the vector at length 1, times 127, rounded; `uint8` is that plus 128.
- `ubinary`: a bit for each value, set where it is above 0, eight to a byte, the first one
  highest; bits that are missing in the last byte are 0. `binary` is that minus 128.
"""

from __future__ import annotations

import math

from headpond_workloads.embedding.vectors import numbers

_INT8_MOST = 127
_OFFSET = 128


def int8(row: bytes) -> list[int]:
    """Return the values of a vector as -127 to 127."""
    found = numbers(row)
    length = math.hypot(*found)
    scale = _INT8_MOST / length if length else 0.0
    return [round(value * scale) for value in found]


def uint8(row: bytes) -> list[int]:
    """Return the values of a vector as 1 to 255."""
    return [value + _OFFSET for value in int8(row)]


def ubinary(row: bytes) -> list[int]:
    """Return the signs of a vector, eight to a byte, as 0 to 255."""
    bits = "".join("1" if value > 0 else "0" for value in numbers(row))
    bits += "0" * (-len(bits) % 8)
    return list(int(bits, 2).to_bytes(len(bits) // 8, "big"))


def binary(row: bytes) -> list[int]:
    """Return the signs of a vector, eight to a byte, as -128 to 127."""
    return [byte - _OFFSET for byte in ubinary(row)]
