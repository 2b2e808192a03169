"""PNG: a signature, and chunks with their lengths before and a checksum behind them."""

from __future__ import annotations

import zlib

from headpond_workloads.images.container import Container, counted

_SIGNATURE_BYTES = 8
_CHECKSUM_BYTES = 4
_SIXTEEN_BIT_RGB = b"\x10\x02"
"""Bit depth and colour type, as `IHDR` has them."""

_PICTURE = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_PROFILE, _EXIF, _TEXTS = b"iCCP", b"eXIf", (b"iTXt", b"zTXt")
_XMP, _RAW_EXIF = b"XML:com.adobe.xmp\0", b"Raw profile type exif\0"
_MOST_TEXT_BYTES = 2**20
"""Of one text that is compressed."""


def png(data: bytes) -> Container:
    """Read a PNG; of an animation the picture that stands for all of it.

    Raises:
        TooManyParts: It has more chunks than may be.
    """
    kept = [data[:_SIGNATURE_BYTES]]
    # Of each only the first: any may have to be unpacked.
    metadata: dict[bytes, bytes] = {}
    profile, at = b"", _SIGNATURE_BYTES
    for _ in counted():
        if at >= len(data):
            break
        length, name = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        body, end = at + 8, at + 8 + length + _CHECKSUM_BYTES
        if name == b"tRNS" and data[24:26] == _SIXTEEN_BIT_RGB:
            kept.append(_upper_bytes(data[body : body + min(length, 6)]))
        elif name in _PICTURE:
            kept.append(data[at:end])
        elif name == _PROFILE and not profile:
            profile = data[at:end]
            kept.append(profile)
        elif (key := _metadata(name, data, body)) is not None and key not in metadata:
            metadata[key] = data[body : body + length]
        if name == b"IEND":
            break
        at = end
    exif = metadata.get(_EXIF) or _raw_exif(metadata.get(_RAW_EXIF, b""))
    xmp = _xmp(metadata.get(_XMP, b""))
    return Container(data=b"".join(kept), exif=exif.removeprefix(b"Exif\0\0"), xmp=xmp)


def _metadata(name: bytes, data: bytes, body: int) -> bytes | None:
    """Return what a chunk's body is, where it may say which way up the picture is."""
    if name == _EXIF:
        return _EXIF
    known = (key for key in (_XMP, _RAW_EXIF) if name in _TEXTS and data.startswith(key, body))
    return next(known, None)


def _upper_bytes(colour: bytes) -> bytes:
    """Return a `tRNS` for the eight upper bits of each channel, which are what Pillow reads."""
    named = b"tRNS" + b"".join(b"\0" + colour[at : at + 1] for at in range(0, len(colour), 2))
    checksum = zlib.crc32(named).to_bytes(4, "big")
    return (len(named) - 4).to_bytes(4, "big") + named + checksum


def _xmp(text: bytes) -> bytes:
    """Return the packet of an `iTXt`: flags, a language and a translation are before it."""
    rest = text.removeprefix(_XMP)
    packet = rest[2:].split(b"\0", 2)[-1]
    return _inflated(packet) if rest[:1] == b"\1" else packet


def _raw_exif(text: bytes) -> bytes:
    """Return what ImageMagick writes in a `zTXt`: a heading of three lines, then digits."""
    lines = _inflated(text[len(_RAW_EXIF) + 1 :]).split(b"\n")
    try:
        return bytes.fromhex(b"".join(lines[3:]).decode("ascii"))
    except ValueError:
        return b""


def _inflated(packed: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, _MOST_TEXT_BYTES)
    except zlib.error:
        return b""
