"""JPEG: segments led by markers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headpond_workloads.images.container import Container, counted

_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
"""What leads a segment; within a scan 0xFF is followed by 0 or by a restart."""

_ALONE, _END, _SCAN = (0x01, 0xD8), 0xD9, 0xDA
"""Markers without a body, the end of the image, and the start of a scan."""

_COMMENT, _FIRST_APP, _LAST_APP = 0xFE, 0xE0, 0xEF
_EXIF, _XMP, _PROFILE = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0", b"ICC_PROFILE\0"
_COLOURS = (b"JFIF\0", _PROFILE, b"Adobe")
"""Starts of those application segments that say how colours are meant."""

_MOST_TABLE_BYTES = 2**18
"""Of all tables before the first scan, which Pillow reads number by number; usual is a kilobyte."""

_FILL, _MUCH_FILL = re.compile(rb"\xff{2,}"), b"\xff" * 64
"""Each time libjpeg gets more data it reads such a run from the start; it means the same as one."""


class TooManyTables(ValueError):
    """A JPEG has more tables than any decoder keeps."""


def jpeg(data: bytes) -> Container:
    """Read a JPEG, whatever its metadata holds and whatever follows its end.

    Raises:
        TooManyParts: It has more segments than may be.
        TooManyTables: They hold more tables than may be.
    """
    kept: list[bytes] = [b"\xff\xd8"]
    exif = xmp = b""
    scans = table_bytes = 0
    for marker, start, end in _segments(data):
        if marker == _SCAN:
            scans += 1
            if scans == 1:
                rest = data[start:]
                kept.append(_FILL.sub(b"\xff", rest) if _MUCH_FILL in rest else rest)
        elif not scans:
            body = data[start + 4 : end]
            if _is_picture(marker, body):
                table_bytes += 0 if marker >= _FIRST_APP else len(body)
                if table_bytes > _MOST_TABLE_BYTES:
                    raise TooManyTables
                kept.append(data[start:end])
            elif body.startswith(_EXIF):
                exif = exif or body.removeprefix(_EXIF)
            elif body.startswith(_XMP):
                xmp = xmp or body.removeprefix(_XMP)
    return Container(data=b"".join(kept), exif=exif, xmp=xmp, scans=scans)


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the marker, start and end of each segment up to the end of the image."""
    at = 0
    for _ in counted():
        found = _MARKER.search(data, at)
        if found is None or found[1][0] == _END:
            return
        marker, at = found[1][0], found.end()
        if marker not in _ALONE:
            at += int.from_bytes(data[at : at + 2], "big")
            yield marker, found.start(), at


def _is_picture(marker: int, body: bytes) -> bool:
    if _FIRST_APP <= marker <= _LAST_APP:
        return body.startswith(_COLOURS)
    return marker != _COMMENT
