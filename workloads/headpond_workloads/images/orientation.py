"""Which way up a picture is, by its metadata.

Of EXIF only the one entry is read: a reader of all of them copies what each points at, and a few
kilobytes whose entries overlap come to gigabytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from PIL import Image

_TAG = 0x0112
_NUMBERS = {1: "B", 3: "H", 4: "L"}
"""Types that a small number may have, as `struct` writes them."""

_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_TURNS: Mapping[int | None, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns each orientation upright; 1, and all that is none, is upright."""


def upright_turn(exif: bytes, xmp: bytes) -> Image.Transpose | None:
    """Return what turns a picture upright; None when it is, or nobody can say.

    Args:
        exif: A TIFF header and what follows; it goes before XMP.
        xmp: A packet of XMP.
    """
    said = _in_exif(exif)
    if said is None and (found := _IN_XMP.search(xmp)) is not None:
        said = int(found[1])
    return _TURNS.get(said)


def _in_exif(exif: bytes) -> int | None:
    order = _ORDERS.get(exif[:4])
    if order is None or len(exif) < 8:
        return None
    (directory,) = struct.unpack_from(f"{order}L", exif, 4)
    at = directory + 2
    entries = int.from_bytes(exif[directory:at], "little" if order == "<" else "big")
    whole = max(0, min(entries, (len(exif) - at) // 12))
    table = exif[at : at + 12 * whole]
    for tag, kind, count, value in struct.iter_unpack(f"{order}HHL4s", table):
        if tag == _TAG and count == 1 and kind in _NUMBERS:
            return int(struct.unpack_from(order + _NUMBERS[kind], value)[0])
    return None
