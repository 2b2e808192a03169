"""What has to be known of a file before a reader of Pillow may look at it.

Its readers of PNG, JPEG and BMP only look at headers until an image is loaded. Those of GIF
and WEBP get memory for a canvas, or for a frame, before anyone could look at the size. And a
JPEG may hold thousands of scans of a few bytes, each of which takes time for the whole image.
"""

from __future__ import annotations

import re

Size = tuple[int, int]

_EXTENSION, _IMAGE = 0x21, 0x2C
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
"""What leads a segment of a JPEG; within a scan 0xFF is followed by 0 or by a restart."""

_ALONE, _END, _SCAN = (0x01, 0xD8), 0xD9, 0xDA
"""Markers without a body, the end of the image, and the start of a scan."""


def gif_size(data: bytes) -> Size | None:
    """Return what holds both the screen and the first frame of a GIF; None when it has none."""
    if len(data) < 13:
        return None
    width, height = _uint16(data, 6), _uint16(data, 8)
    at = 13 + _palette_bytes(data[10])
    while at < len(data) and data[at] == _EXTENSION:
        at = _after_blocks(data, at + 2)
    if len(data) < at + 10 or data[at] != _IMAGE:
        return None
    right = _uint16(data, at + 1) + _uint16(data, at + 5)
    bottom = _uint16(data, at + 3) + _uint16(data, at + 7)
    return max(width, right), max(height, bottom)


def webp_size(data: bytes) -> Size | None:
    """Return the size of a WEBP's canvas; None when its first chunk is none that says it."""
    chunk, body = data[12:16], data[20:30]
    if len(body) < 10:
        return None
    if chunk == b"VP8X":
        return _uint24(body, 4) + 1, _uint24(body, 7) + 1
    if chunk == b"VP8 ":
        return _uint16(body, 6) & 0x3FFF, _uint16(body, 8) & 0x3FFF
    if chunk == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    return None


def jpeg_scans(data: bytes) -> int:
    """Count the scans of a JPEG, whatever its metadata holds and whatever follows its end."""
    scans = at = 0
    while (found := _MARKER.search(data, at)) is not None:
        marker, at = found[1][0], found.end()
        if marker == _END:
            break
        if marker not in _ALONE:
            at += int.from_bytes(data[at : at + 2], "big")
        scans += marker == _SCAN
    return scans


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(data: bytes, at: int) -> int:
    """Return the place behind a chain of blocks, each led by its length, 0 for the end."""
    while at < len(data) and data[at]:
        at += 1 + data[at]
    return at + 1


def _uint16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


def _uint24(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 3], "little")
