"""A file of an image, cut down to what its pixels need.

Pillow's readers walk a file's metadata in Python, a segment, chunk or block at a time, before
anyone could look at the size: a few megabytes of empty ones, or of EXIF whose entries overlap,
hold the interpreter for minutes or take gigabytes. So each format is walked here first, by jumps
and no farther than `MOST_PARTS`; a reader sees only the parts that a picture is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Size = tuple[int, int]

MOST_PARTS = 16_384
"""Segments, chunks or blocks of one file. Those of 8 KiB, as PNGs have them, come to 128 MiB."""


class TooManyParts(ValueError):
    """A file is cut into more parts than any encoder makes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """What a file holds.

    Attributes:
        data: The same picture as a file without metadata; an ICC profile counts as picture.
        size: What holds both canvas and first frame; None where the reader looks before it
            takes memory.
        exif: A TIFF header and what follows, empty when there is none.
        xmp: A packet of XMP, empty when there is none.
        scans: How often the data goes through the whole picture, where it says so.
        run_lengths: Whether pixels are run-length encoded.
    """

    data: bytes
    size: Size | None = None
    exif: bytes = b""
    xmp: bytes = b""
    scans: int = 1
    run_lengths: bool = False


def counted() -> Iterator[int]:
    """Count the parts of one file.

    Raises:
        TooManyParts: There are more than `MOST_PARTS`.
    """
    yield from range(MOST_PARTS)
    raise TooManyParts(f"is in more than {MOST_PARTS} parts")


def uint16(data: bytes, at: int) -> int:
    """Return a little-endian number of two bytes; of what is cut off, zeros are missing."""
    return int.from_bytes(data[at : at + 2], "little")


def uint24(data: bytes, at: int) -> int:
    """Return a little-endian number of three bytes."""
    return int.from_bytes(data[at : at + 3], "little")


def uint32(data: bytes, at: int) -> int:
    """Return a little-endian number of four bytes."""
    return int.from_bytes(data[at : at + 4], "little")


def bmp(data: bytes) -> Container:
    """Read a BMP: it has no metadata. Only headers of 40 bytes and more name a compression."""
    compression = uint32(data, 30) if uint32(data, 14) >= 40 else 0
    return Container(data=data, run_lengths=compression in (1, 2))
