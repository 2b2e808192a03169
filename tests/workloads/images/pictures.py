"""Pictures made on the spot: files of every format, colour profiles, and bombs."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from numpy.typing import NDArray
from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")

Array = NDArray[np.uint8]


def scene(width: int = 64, height: int = 48, seed: int = 0) -> Image.Image:
    """Smooth colours with a few edges, different in every corner; in mode RGB."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    picture = coarse.resize((width, height), Image.Resampling.BICUBIC)
    picture.paste((250, 20, 30), (2, 2, width // 4, height // 3))
    picture.paste((20, 40, 240), (width * 3 // 5, height // 2, width - 3, height - 6))
    return picture


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def array(picture: Image.Image) -> Array:
    return np.asarray(picture)


def apart(one: Image.Image | Array, other: Image.Image | Array) -> int:
    """The largest difference of two pictures of one size, in levels."""
    left, right = np.asarray(one).astype(int), np.asarray(other).astype(int)
    assert left.shape == right.shape
    return int(np.abs(left - right).max())


def _tag(name: bytes, body: bytes) -> tuple[bytes, bytes]:
    return name, body + b"\0" * (-len(body) % 4)


def _xyz(values: tuple[float, float, float]) -> bytes:
    return b"XYZ \0\0\0\0" + b"".join(struct.pack(">i", round(v * 65536)) for v in values)


def _gamma(gamma: float) -> bytes:
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))


def _profile(space: bytes, tags: list[tuple[bytes, bytes]]) -> bytes:
    """An ICC profile, version 2, for displays."""
    text = b"A test's own"
    described = struct.pack(">I", len(text) + 1) + text + b"\0" + b"\0" * 78
    tags = [
        _tag(b"desc", b"desc\0\0\0\0" + described),
        _tag(b"cprt", b"text\0\0\0\0none\0"),
        _tag(b"wtpt", _xyz((0.9642, 1.0, 0.8249))),
        *tags,
    ]
    at = 128 + 4 + 12 * len(tags)
    table, bodies = struct.pack(">I", len(tags)), b""
    for name, body in tags:
        table += name + struct.pack(">II", at + len(bodies), len(body))
        bodies += body
    size = 128 + len(table) + len(bodies)
    header = struct.pack(">I4sI4s4s4s", size, b"\0\0\0\0", 0x02400000, b"mntr", space, b"XYZ ")
    header += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp") + b"\0" * 28
    header += _xyz((0.9642, 1.0, 0.8249))[8:]
    return header.ljust(128, b"\0") + table + bodies


_RED, _GREEN, _BLUE = (0.4360, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141)


def swapped_profile() -> bytes:
    """sRGB's primaries, but red and blue change places."""
    return _profile(
        b"RGB ",
        [
            _tag(b"rXYZ", _xyz(_BLUE)),
            _tag(b"gXYZ", _xyz(_GREEN)),
            _tag(b"bXYZ", _xyz(_RED)),
            *(_tag(name, _gamma(2.2)) for name in (b"rTRC", b"gTRC", b"bTRC")),
        ],
    )


def linear_grey_profile() -> bytes:
    """Grey whose values are light itself, where sRGB's are about its square root."""
    return _profile(b"GRAY", [_tag(b"kTRC", _gamma(1.0))])


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png_of_zeros(side: int, *, bits: int = 1, colour: int = 0) -> bytes:
    """A whole PNG of one colour, packed row by row: it never takes memory here.

    Args:
        side: Its rows and columns.
        bits: Of each channel.
        colour: The PNG's colour type: 0 grey, 2 RGB, 6 RGBA.
    """
    channels = {0: 1, 2: 3, 6: 4}[colour]
    header = struct.pack(">IIBBBBB", side, side, bits, colour, 0, 0, 0)
    row = b"\0" * (1 + -(-side * bits * channels // 8))
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", data)
        + _chunk(b"IEND", b"")
    )


def gif_bomb(side: int) -> bytes:
    """A small screen, and a first frame, disposed of afterwards, that is far larger."""
    control = b"\x21\xf9\x04\x08\0\0\0\0"
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, side, side, 0)
    return b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0, 0, 0) + control + frame + b"\x02\x01\x00\0;"


def webp_bomb(side: int) -> bytes:
    """A canvas as large as the format allows, with a small picture on it."""
    small = saved(scene(), "WEBP", lossless=True)[12:]
    edge = struct.pack("<I", side - 1)[:3]
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + edge + edge + small
    return b"RIFF" + struct.pack("<I", len(body)) + body


def bmp_bomb(side: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 14 + len(header), 0, 0, 54) + header


def jpeg_bomb(side: int) -> bytes:
    """A small JPEG whose frame header says that it is larger."""
    file = bytearray(saved(scene(), "JPEG"))
    at = file.index(b"\xff\xc0")
    file[at + 5 : at + 9] = struct.pack(">HH", side, side)
    return bytes(file)


BOMBS = {
    "PNG": lambda: png_of_zeros(12_000),
    "GIF": lambda: gif_bomb(13_000),
    "WEBP": lambda: webp_bomb(16_383),
    "BMP": lambda: bmp_bomb(40_000),
    "JPEG": lambda: jpeg_bomb(30_000),
}


def jpeg_with(segments: bytes) -> bytes:
    """A JPEG with segments before its own."""
    file = saved(scene(), "JPEG")
    return file[:2] + segments + file[2:]


def segment(marker: int, body: bytes) -> bytes:
    """A segment of a JPEG."""
    return bytes([0xFF, marker]) + struct.pack(">H", 2 + len(body)) + body


def png_with(chunks: bytes, *, behind: int = 33) -> bytes:
    """A PNG with chunks behind its header, or behind as many bytes."""
    file = saved(scene(), "PNG")
    return file[:behind] + chunks + file[behind:]


def chunk(name: bytes, body: bytes) -> bytes:
    """A chunk of a PNG."""
    return _chunk(name, body)


def overlapping_exif(entries: int, length: int) -> bytes:
    """EXIF whose every entry is all of what is behind them, and so as long."""
    behind = 8 + 2 + 12 * entries + 4
    table = b"".join(struct.pack(">HHII", 1000 + at, 7, length, behind) for at in range(entries))
    return b"MM\0*\0\0\0\x08" + struct.pack(">H", entries) + table + b"\0" * 4 + b"x" * length


def webp_with(chunks: bytes) -> bytes:
    """A WEBP that says it has EXIF and XMP, with chunks behind the picture."""
    size = struct.pack("<I", 63)[:3] + struct.pack("<I", 47)[:3]
    header = b"VP8X" + struct.pack("<IB3x", 10, 0x0C) + size
    body = b"WEBP" + header + saved(scene(), "WEBP")[12:] + chunks
    return b"RIFF" + struct.pack("<I", len(body)) + body


def gif_with(blocks: bytes) -> bytes:
    """A GIF with a comment in blocks before its frame."""
    file = saved(scene(), "GIF")
    at = file.index(b"\x2c\0\0\0\0")
    return file[:at] + b"\x21\xfe" + blocks + b"\0" + file[at:]


def run_length_bmp(pairs: int) -> bytes:
    """A BMP in runs."""
    header = struct.pack("<IiiHHIIiiII", 40, 100, 100, 1, 8, 1, 0, 0, 0, 256, 0)
    return (
        b"BM" + struct.pack("<IHHI", 0, 0, 0, 54 + 1024) + header + bytes(1024) + b"\xff\5" * pairs
    )


CUT_UP = {
    "JPEG of Exif": lambda: jpeg_with(segment(0xE1, b"Exif\0\0") * 20_000),
    "JPEG of comments": lambda: jpeg_with(segment(0xFE, b"") * 20_000),
    "JPEG of starts": lambda: b"\xff\xd8" * 20_000 + saved(scene(), "JPEG"),
    "PNG of texts": lambda: png_with(chunk(b"tEXt", b"") * 20_000),
    "PNG of empty data": lambda: png_with(chunk(b"IDAT", b"") * 20_000),
    "GIF of blocks": lambda: gif_with(b"\1a" * 20_000),
    "WEBP of chunks": lambda: webp_with(b"JUNK\0\0\0\0" * 20_000),
}
"""Files in far more parts than an encoder makes."""

METADATA = {
    "JPEG, overlapping": lambda: jpeg_with(
        segment(0xE1, b"Exif\0\0" + overlapping_exif(2000, 32_000))
    ),
    "JPEG, many": lambda: jpeg_with(segment(0xE1, b"Exif\0\0" + b"A" * 10_000) * 1000),
    "JPEG, Photoshop's": lambda: jpeg_with(
        segment(0xED, b"Photoshop 3.0\0" + b"8BIM\4\0\0\0\0\0\0\0" * 5000) * 20
    ),
    "JPEG, junk": lambda: jpeg_with(b"\xff" * 2**20 + b"\xfe\0\2" + b"\0" * 2**20),
    "PNG, overlapping": lambda: png_with(chunk(b"eXIf", overlapping_exif(2000, 2**20))),
    "WEBP, overlapping": lambda: webp_with(
        b"EXIF" + struct.pack("<I", 24_014 + 2**20) + overlapping_exif(2000, 2**20)
    ),
    "GIF, a comment": lambda: gif_with(b"\xff" + b"a" * 255 + b"\1a" * 10_000),
}
"""Whole pictures, with metadata that costs whoever reads all of it gigabytes or minutes."""
