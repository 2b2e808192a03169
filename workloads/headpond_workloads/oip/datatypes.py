"""Datatypes of tensors, and their values as little-endian bytes, without numpy."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import StrEnum

Number = bool | int | float

_LENGTH = struct.Struct("<I")


class Datatype(StrEnum):
    """What the entries of a tensor are."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BF16 = "BF16"
    """Travels as binary data only."""
    BYTES = "BYTES"
    """Texts or files; on the wire each has its length before it, as a uint32."""

    @property
    def width_bytes(self) -> int:
        """Bytes of one entry; of BYTES the least, which is its length alone."""
        return struct.calcsize(_CODES[self])

    @property
    def is_float(self) -> bool:
        """Whether the entries have a fraction."""
        return self in _FLOATS


_CODES = {
    Datatype.BOOL: "<?",
    Datatype.UINT8: "<B",
    Datatype.UINT16: "<H",
    Datatype.UINT32: "<I",
    Datatype.UINT64: "<Q",
    Datatype.INT8: "<b",
    Datatype.INT16: "<h",
    Datatype.INT32: "<i",
    Datatype.INT64: "<q",
    Datatype.FP16: "<e",
    Datatype.FP32: "<f",
    Datatype.FP64: "<d",
    Datatype.BF16: "<H",
    Datatype.BYTES: _LENGTH.format,
}
_FLOATS = frozenset({Datatype.FP16, Datatype.FP32, Datatype.FP64, Datatype.BF16})


def pack(datatype: Datatype, values: Sequence[Number]) -> bytes:
    """Return numbers as bytes.

    Args:
        datatype: Neither BYTES nor BF16.
        values: The numbers.

    Raises:
        ValueError: The datatype cannot hold one of them, or holds no such numbers.
    """
    if datatype in (Datatype.BYTES, Datatype.BF16):
        raise ValueError(f"numbers are not packed as {datatype}")
    try:
        return struct.pack(f"<{len(values)}{_CODES[datatype][1]}", *values)
    except (struct.error, OverflowError):
        raise ValueError(f"holds a value that {datatype} cannot") from None


def unpack(datatype: Datatype, data: bytes) -> tuple[Number, ...]:
    """Return the numbers that bytes of a tensor hold.

    Raises:
        ValueError: BYTES are no numbers.
    """
    if datatype is Datatype.BYTES:
        raise ValueError("BYTES are no numbers")
    if datatype is Datatype.BF16:
        return unpack(Datatype.FP32, _widened(data))
    return struct.unpack(f"<{len(data) // datatype.width_bytes}{_CODES[datatype][1]}", data)


def _widened(data: bytes) -> bytes:
    """Return BF16 as FP32, whose upper halves they are."""
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[::2], data[1::2]
    return bytes(wide)


def join_elements(elements: Iterable[bytes]) -> bytes:
    """Return the elements of a BYTES tensor as one: each with its length before it."""
    return b"".join(part for each in elements for part in (_LENGTH.pack(len(each)), each))


def split_elements(data: bytes, count: int) -> list[bytes]:
    """Return the elements of a BYTES tensor.

    Raises:
        ValueError: There are not exactly `count`, or the last one is cut off.
    """
    elements = []
    at = 0
    for found in range(count):
        start = at + _LENGTH.size
        if start > len(data):
            raise ValueError(f"must hold {count} entries, as the shape says, not {found}")
        at = start + _LENGTH.unpack_from(data, at)[0]
        elements.append(data[start:at])
    if at > len(data):
        raise ValueError("ends amid an entry")
    if at < len(data):
        raise ValueError(f"holds more than {count} entries, which the shape says")
    return elements
