"""Vectors as bytes, numbers and base64, without numpy: clients have none."""

from __future__ import annotations

import math
import sys
from array import array
from base64 import b64decode, b64encode

_FLOAT_BYTES = 4


def encode(vectors: bytes) -> str:
    """Return little-endian float32 in base64."""
    return b64encode(vectors).decode("ascii")


def decode(text: str) -> list[float]:
    """Return the numbers of little-endian float32 in base64.

    Raises:
        ValueError: The text is not base64, or not of whole numbers.
    """
    return numbers(b64decode(text, validate=True)).tolist()


def numbers(vectors: bytes) -> array[float]:
    """Return the numbers of little-endian float32."""
    found = array("f", vectors)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def rows(vectors: bytes, dimensions: int) -> list[bytes]:
    """Cut vectors apart: each of `dimensions` values."""
    width = dimensions * _FLOAT_BYTES
    return [vectors[at : at + width] for at in range(0, len(vectors), width)]


def is_finite(vectors: bytes) -> bool:
    """Say whether there is neither NaN nor infinity in them."""
    # Sums of finite float32 stay finite in double, and what is not finite stays so in them.
    return math.isfinite(sum(numbers(vectors)))


def dot(left: bytes, right: bytes) -> float:
    """Return the inner product of two vectors."""
    return math.fsum(a * b for a, b in zip(numbers(left), numbers(right), strict=True))
