"""WEBP: chunks of RIFF, with their lengths before them."""

from __future__ import annotations

from headpond_workloads.images.container import Container, Size, counted, uint16, uint24, uint32

_FIRST_CHUNK = 12


def webp(data: bytes) -> Container:
    """Read a WEBP; libwebp walks it quickly, so all of it stays.

    Raises:
        TooManyParts: It has more chunks than may be.
    """
    exif = xmp = b""
    at = _FIRST_CHUNK
    for _ in counted():
        if at >= len(data):
            break
        name, length = data[at : at + 4], uint32(data, at + 4)
        if name == b"EXIF":
            exif = exif or data[at + 8 : at + 8 + length].removeprefix(b"Exif\0\0")
        elif name == b"XMP ":
            xmp = xmp or data[at + 8 : at + 8 + length]
        at += 8 + length + length % 2
    return Container(data=data, size=_canvas(data[12:16], data[20:30]), exif=exif, xmp=xmp)


def _canvas(chunk: bytes, body: bytes) -> Size:
    """Return the size that the first chunk says; none is 0 by 0."""
    if len(body) < 10:
        return 0, 0
    if chunk == b"VP8X":
        return uint24(body, 4) + 1, uint24(body, 7) + 1
    if chunk == b"VP8 ":
        return uint16(body, 6) & 0x3FFF, uint16(body, 8) & 0x3FFF
    if chunk == b"VP8L":
        bits = uint32(body, 1)
        return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    return 0, 0
