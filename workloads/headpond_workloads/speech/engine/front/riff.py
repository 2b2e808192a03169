"""WAV files that the media library plays as far as it can, and says nothing of the rest."""

from __future__ import annotations

import struct

_HEAD_BYTES = 12
_CHUNK = struct.Struct("<4sI")
_CHANNELS = struct.Struct("<2xH")
_MAX_CHANNELS = 64
_PLACEHOLDER = 0x7FFF_0000
"""Sizes from here on, and zero, are what programs write that could not know them yet."""


def fault(content: bytes) -> str | None:
    """Return why a WAV file cannot be read to its end; None where nothing is wrong.

    Files of other kinds have nothing wrong.
    """
    form, kind = content[:4], content[8:_HEAD_BYTES]
    if kind != b"WAVE" or form not in (b"RIFF", b"RIFX", b"RF64"):
        return None
    if form == b"RIFX":
        return "big-endian WAV (RIFX) is not read here"
    at = _HEAD_BYTES
    while at + _CHUNK.size <= len(content):
        name, size = _CHUNK.unpack_from(content, at)
        at += _CHUNK.size
        if name == b"fmt " and at + _CHANNELS.size <= len(content):
            (channels,) = _CHANNELS.unpack_from(content, at)
            if not 1 <= channels <= _MAX_CHANNELS:
                return f"{channels} channels are not read here"
        if name == b"data":
            missing = at + size - len(content) if 0 < size < _PLACEHOLDER else 0
            return f"the file ends early: {missing} bytes are missing" if missing > 0 else None
        at += size + size % 2
    return None
