"""GIF: a screen, and then extensions and frames in chains of blocks."""

from __future__ import annotations

from headpond_workloads.images.container import Container, counted, uint16

_HEADER_BYTES = 13
_EXTENSION, _IMAGE, _CONTROL = 0x21, 0x2C, 0xF9


def gif(data: bytes) -> Container:
    """Read a GIF as far as its first frame, and keep the frame's transparency of what is before.

    Raises:
        TooManyParts: More blocks are before the first frame than may be.
        ValueError: It has no frame.
    """
    if len(data) < _HEADER_BYTES:
        raise ValueError("a GIF has a screen")
    start = at = _HEADER_BYTES + _palette_bytes(data[10])
    control, parts = b"", counted()
    while at < len(data) and data[at] == _EXTENSION:
        end = at + 2
        for _ in parts:
            if end >= len(data) or not data[end]:
                break
            end += 1 + data[end]
        if data[at + 1 : at + 2] == bytes([_CONTROL]):
            control = data[at : end + 1]
        at = end + 1
    if len(data) < at + 10 or data[at] != _IMAGE:
        raise ValueError("a GIF has a frame")
    right = uint16(data, at + 1) + uint16(data, at + 5)
    bottom = uint16(data, at + 3) + uint16(data, at + 7)
    size = max(uint16(data, 6), right), max(uint16(data, 8), bottom)
    return Container(data=data[:start] + control + data[at:], size=size)


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0
