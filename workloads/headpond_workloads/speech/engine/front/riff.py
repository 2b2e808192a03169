"""WAV files that were cut short: the media library plays what is there and says nothing."""

from __future__ import annotations

import struct

_HEAD_BYTES = 12
_CHUNK = struct.Struct("<4sI")
_PLACEHOLDER = 0x7FFF_0000
"""Sizes from here on, and zero, are what programs write that could not know them yet."""


def missing_bytes(content: bytes) -> int:
    """Return how many bytes of samples a WAV file declares and lacks; 0 for all others."""
    if content[:4] != b"RIFF" or content[8:_HEAD_BYTES] != b"WAVE":
        return 0
    at = _HEAD_BYTES
    while at + _CHUNK.size <= len(content):
        name, size = _CHUNK.unpack_from(content, at)
        at += _CHUNK.size
        if name == b"data":
            known = 0 < size < _PLACEHOLDER
            return max(0, at + size - len(content)) if known else 0
        at += size + size % 2
    return 0
