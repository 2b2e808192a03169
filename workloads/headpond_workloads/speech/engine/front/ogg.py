"""Ogg files that were cut short: the media library plays what is there and says nothing."""

from __future__ import annotations

_MAGIC = b"OggS"
_FLAGS_AT = 5
_SEGMENTS_AT = 26
_HEAD_BYTES = 27
_ENDS_STREAM = 4


def is_cut(content: bytes) -> bool:
    """Say whether an Ogg file lacks the page that ends its stream, or a part of it.

    Files of other kinds are not cut.
    """
    at = content.find(_MAGIC) if content.startswith(_MAGIC) else -1
    ended = at < 0
    while at >= 0:
        head_ends = at + _HEAD_BYTES
        if head_ends > len(content):
            return True
        sizes = content[head_ends : head_ends + content[at + _SEGMENTS_AT]]
        page_ends = head_ends + content[at + _SEGMENTS_AT] + sum(sizes)
        if page_ends > len(content):
            return True
        ended = bool(content[at + _FLAGS_AT] & _ENDS_STREAM)
        at = content.find(_MAGIC, page_ends)
    return not ended
