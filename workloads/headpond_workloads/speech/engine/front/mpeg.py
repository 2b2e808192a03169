"""How long an MP3 file declares to be: in its first frame, as encoders leave it there.

Without such a frame, nobody can tell whether a file is whole.
"""

from __future__ import annotations

_TAG_HEAD_BYTES = 10
_HEAD_BYTES = 4
_SEARCHED_BYTES = 2**16
_VBRI_AT = 36
_MPEG_2_5, _MPEG_2, _MPEG_1 = 0, 2, 3
_LAYER_3 = 1
_MONO = 3
_HAS_FRAMES = 1
_SIDE_BYTES = {(True, False): 32, (True, True): 17, (False, False): 17, (False, True): 9}
"""What stands before a Xing head: by whether it is MPEG 1, and mono."""

_RATES_HZ = {
    _MPEG_1: (44_100, 48_000, 32_000),
    _MPEG_2: (22_050, 24_000, 16_000),
    _MPEG_2_5: (11_025, 12_000, 8_000),
}


def declared_s(content: bytes) -> float | None:
    """Return how long the frames of an MP3 file are together, as its Xing or VBRI head says.

    None where it has no such head, or is a file of another kind.
    """
    at = _frame(content, _after_tag(content))
    if at is None:
        return None
    version = content[at + 1] >> 3 & 3
    xing = at + _HEAD_BYTES + _SIDE_BYTES[version == _MPEG_1, _is_mono(content, at)]
    vbri = at + _VBRI_AT
    if content[xing : xing + 4] in (b"Xing", b"Info") and content[xing + 7 : xing + 8]:
        if not content[xing + 7] & _HAS_FRAMES:
            return None
        frames = int.from_bytes(content[xing + 8 : xing + 12])
    elif content[vbri : vbri + 4] == b"VBRI":
        frames = int.from_bytes(content[vbri + 14 : vbri + 18])
    else:
        return None
    samples = 1152 if version == _MPEG_1 else 576
    return frames * samples / _RATES_HZ[version][content[at + 2] >> 2 & 3]


def _after_tag(content: bytes) -> int:
    """Return where an ID3 tag at the start ends."""
    if content[:3] != b"ID3" or len(content) < _TAG_HEAD_BYTES:
        return 0
    size = 0
    for each in content[6:_TAG_HEAD_BYTES]:
        size = size << 7 | each & 0x7F
    return _TAG_HEAD_BYTES + size


def _frame(content: bytes, at: int) -> int | None:
    """Return where the first frame of layer 3 begins; None where none does nearby."""
    for start in range(at, min(at + _SEARCHED_BYTES, len(content) - _HEAD_BYTES)):
        first, second, third = content[start : start + 3]
        synced = first == 0xFF and second & 0xE0 == 0xE0
        layer, version = second >> 1 & 3, second >> 3 & 3
        rated = third >> 4 not in (0, 15) and third >> 2 & 3 != 3
        if synced and layer == _LAYER_3 and version in _RATES_HZ and rated:
            return start
    return None


def _is_mono(content: bytes, at: int) -> bool:
    return content[at + 3] >> 6 == _MONO
