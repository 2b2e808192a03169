"""From the bytes of a file to an upright picture in sRGB, within bounds.

Rules, in this order:

- The format is told from the first bytes: PNG, JPEG, WEBP, GIF or BMP; nothing else is tried.
- A file of more segments, chunks or blocks than encoders make is refused, and so is a
  run-length encoded BMP: Pillow looks at each in Python, byte by byte.
- More pixels than allowed are refused from the header, before anything is decoded; so is a
  JPEG of more than 64 scans.
- Of an animation, the first frame counts.
- A JPEG that is far larger than needed is decoded at a half, quarter or eighth.
- EXIF (or XMP) orientation is applied; metadata that can't be read is ignored.
- 16-bit grey keeps its upper eight bits; other depths come as eight bits already.
- What is transparent is laid on white.
- An ICC profile of the picture's own colour space leads to sRGB; without one, or with one
  that can't be read or is not for this space, grey and CMYK are converted plainly.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageChops, ImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from headpond.errors import InvalidRequest, PayloadTooLarge
from headpond_workloads.images.colour import in_mode, to_srgb
from headpond_workloads.images.container import Container, Size, TooManyParts, bmp
from headpond_workloads.images.gif import gif
from headpond_workloads.images.jpeg import jpeg
from headpond_workloads.images.orientation import upright_turn
from headpond_workloads.images.png import png
from headpond_workloads.images.webp import webp

UNREADABLE = (
    OSError,  # what Pillow means to raise, UnidentifiedImageError included
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    EOFError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""Every class of exception that escapes Pillow's five readers on broken files."""

REDUCE_MARGIN = 2
"""A JPEG is decoded with at least so many times the pixels that are needed, on each side.

At 2 an eight-megapixel photo takes a third of the time, and the pixels of a 224-pixel input
differ by 0.3 of 255 on average; at 1 by 1.0.
"""

MOST_SCANS = 64
"""Scans of a JPEG; encoders make about ten, and each takes time for all of the image."""

Reader = tuple[type[ImageFile.ImageFile], Callable[[bytes], Container]]

_READERS: tuple[tuple[bytes, int, bytes, Reader], ...] = (
    (b"\xff\xd8\xff", 0, b"", (JpegImageFile, jpeg)),
    (b"\x89PNG\r\n\x1a\n", 0, b"", (PngImageFile, png)),
    (b"RIFF", 8, b"WEBP", (WebPImageFile, webp)),
    (b"GIF8", 0, b"", (GifImageFile, gif)),
    (b"BM", 0, b"", (BmpImageFile, bmp)),
)
"""First bytes, where more follow, those, and what reads pixels and what reads the rest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A decoded image.

    Attributes:
        image: Upright, in mode `RGB`; smaller than the file says when it was reduced.
        pixels: Pixels of the file, as its header says.
    """

    image: Image.Image
    pixels: int


def decode(data: bytes, *, max_pixels: int, needed: int, param: str) -> Picture:
    """Decode a file.

    Args:
        data: The file.
        max_pixels: More are refused. Decoding takes at most about 12 bytes for each.
        needed: Pixels that both sides must keep when a JPEG is decoded at reduced scale.
        param: The request field to name in errors.

    Raises:
        PayloadTooLarge: It says that it has more than `max_pixels`.
        InvalidRequest: It is none of the formats, or broken.
    """
    subject = _Subject(noun="image", param=param)
    with _refusing(subject):
        image, pixels = _upright(data, max_pixels, needed, subject)
        profile = image.info.get("icc_profile")
        image = _eight_bits(image)
        image = _opaque(image)
        return Picture(image=to_srgb(image, profile), pixels=pixels)


def decode_transparency(data: bytes, *, max_pixels: int, param: str) -> Image.Image:
    """Decode how transparent a file is: mode `L`, 255 where nothing of it is seen.

    Args:
        data: The file.
        max_pixels: More are refused.
        param: The request field to name in errors.

    Raises:
        PayloadTooLarge: It says that it has more than `max_pixels`.
        InvalidRequest: It is none of the formats, or broken, or says nothing of transparency.
    """
    subject = _Subject(noun="mask", param=param)
    with _refusing(subject):
        image, _ = _upright(data, max_pixels, 0, subject)
        if not image.has_transparency_data:
            raise subject.refused("says of no part that it is transparent")
        return ImageChops.invert(in_mode(_eight_bits(image), "RGBA").getchannel("A"))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Subject:
    """What errors are about: what the file is, and the field it came in."""

    noun: str
    param: str

    def refused(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"the {self.noun} {why}", param=self.param)

    def too_large(self, why: str) -> PayloadTooLarge:
        return PayloadTooLarge(f"the {self.noun} {why}", param=self.param)


@contextmanager
def _refusing(subject: _Subject) -> Iterator[None]:
    """Turn what broken files make Pillow raise into a refusal."""
    try:
        yield
    except TooManyParts as error:
        raise subject.refused(str(error)) from None
    except UNREADABLE:
        raise subject.refused("cannot be decoded: it is broken") from None
    except MemoryError:
        raise subject.too_large("takes too much memory to decode") from None


def _upright(
    data: bytes, max_pixels: int, needed: int, subject: _Subject
) -> tuple[Image.Image, int]:
    """Return the image of a file, the right way up, and the pixels that its header says."""
    reader, read = _reader(data, subject)
    container = read(data)
    if container.size is not None:
        _check_pixels(container.size, max_pixels, subject)
    if container.scans > MOST_SCANS:
        raise InvalidRequest(f"a JPEG may have {MOST_SCANS} scans", param=subject.param)
    if container.run_lengths:
        raise InvalidRequest("a BMP that is run-length encoded is not read", param=subject.param)
    with reader(io.BytesIO(container.data)) as file:
        pixels = _check_pixels(file.size, max_pixels, subject)
        if needed:
            file.draft("RGB", (needed * REDUCE_MARGIN, needed * REDUCE_MARGIN))
        file.load()
    turn = upright_turn(container.exif, container.xmp)
    return file if turn is None else file.transpose(turn), pixels


def _reader(data: bytes, subject: _Subject) -> Reader:
    for start, at, more, reader in _READERS:
        if data.startswith(start) and data.startswith(more, at):
            return reader
    raise subject.refused("is no PNG, JPEG, WEBP, GIF or BMP")


def _check_pixels(size: Size, max_pixels: int, subject: _Subject) -> int:
    if min(size) < 1:
        raise subject.refused("does not say how large it is")
    pixels = size[0] * size[1]
    if pixels > max_pixels:
        raise subject.too_large(f"has {size[0]} x {size[1]} pixels, and {max_pixels} are allowed")
    return pixels


def _eight_bits(image: Image.Image) -> Image.Image:
    if not image.mode.startswith("I"):
        return image
    # Pillow itself would clip: everything from 256 up would be white.
    levels = np.asarray(image)
    grey = Image.fromarray((levels >> 8).astype(np.uint8))
    if (clear := image.info.get("transparency")) is not None:
        # The one grey that is transparent is told by all of its bits.
        grey.putalpha(Image.fromarray(np.where(levels == clear, 0, 255).astype(np.uint8)))
    return grey


def _opaque(image: Image.Image) -> Image.Image:
    """Return a picture in mode `L`, `RGB` or `CMYK`, laid on white where it is transparent."""
    grey = image.mode in ("1", "L", "LA")
    plain = "L" if grey else image.mode if image.mode == "CMYK" else "RGB"
    if not image.has_transparency_data:
        return in_mode(image, plain)
    layered = in_mode(image, "LA" if grey else "RGBA")
    opaque = layered.convert(plain)
    opaque.paste("white", mask=ImageChops.invert(layered.getchannel("A")))
    return opaque
