"""Thousands of broken files: each becomes a picture or a refusal, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from PIL import Image

from headpond.errors import InvalidRequest
from headpond_workloads.images.decoder import Picture, decode
from workloads.images.pictures import FORMATS, saved, scene, swapped_profile

MUTANTS = 1200
MOST = 400_000

# What Pillow warns of (a corrupt EXIF block, say) is no concern of the caller's.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")


def seeds(kind: str) -> list[bytes]:
    """Small files of a format, of as many kinds as it has."""
    picture = scene(20, 14)
    exif = Image.Exif()
    exif[0x0112] = 6
    extras: dict[str, object] = {"exif": exif, "icc_profile": swapped_profile()}
    animated: dict[str, object] = {"save_all": True, "append_images": [scene(20, 14, 1)]}
    alpha = picture.convert("RGBA")
    alpha.putalpha(picture.convert("L"))
    if kind == "PNG":
        modes = [saved(picture.convert(mode), kind) for mode in ("1", "L", "P", "LA", "RGB")]
        return [*modes, saved(alpha, kind, **extras), saved(picture, kind, **animated)]
    if kind == "JPEG":
        modes = [saved(picture.convert(mode), kind) for mode in ("L", "RGB", "CMYK")]
        return [*modes, saved(picture, kind, progressive=True, **extras)]
    if kind == "WEBP":
        return [
            saved(picture, kind),
            saved(alpha, kind, lossless=True, **extras),
            saved(picture, kind, **animated),
        ]
    if kind == "GIF":
        return [
            saved(picture.convert("P"), kind, transparency=3),
            saved(picture, kind, disposal=2, comment=b"a comment", **animated),
        ]
    return [saved(picture.convert(mode), kind) for mode in ("1", "L", "P", "RGB", "RGBA")]


def mutants(kind: str) -> Iterator[bytes]:
    """Yield broken files: bytes changed, cut out, repeated, and numbers made extreme."""
    random = Random(f"headpond {kind}")  # noqa: S311  to be the same each time
    originals = seeds(kind)
    for number in range(MUTANTS):
        data = bytearray(random.choice(originals))
        # Headers are where a reader decides; half of all changes go there.
        reach = len(data) if random.random() < 0.5 else min(len(data), 64)
        for _ in range(random.choice((1, 1, 2, 4, 16))):
            at = random.randrange(reach)
            way = random.randrange(6)
            if way == 0:
                data[at] ^= 1 << random.randrange(8)
            elif way == 1:
                data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
            elif way == 2:
                width = random.choice((2, 4))
                data[at : at + width] = random.choice((b"\0", b"\xff", b"\x7f")) * width
            elif way == 3:
                del data[at : at + random.randrange(1, 9)]
            elif way == 4:
                data[at:at] = data[at : at + random.randrange(1, 40)]
            else:
                other = random.choice(originals)
                data[at : at + 12] = other[at : at + 12]
            reach = min(reach, len(data)) or 1
            if not data:
                break
        yield bytes(data[: random.randrange(len(data) + 1)] if number % 5 == 0 else data)


def outcome(data: bytes) -> Picture | InvalidRequest:
    try:
        return decode(data, max_pixels=MOST, needed=16, param="image")
    except InvalidRequest as refusal:
        return refusal


def check(result: Picture | InvalidRequest) -> bool:
    """Whether a file gave a picture; what it gave is as it should be."""
    if isinstance(result, Picture):
        assert result.image.mode == "RGB"
        assert 0 < result.pixels <= MOST
        return True
    assert result.param == "image"
    assert result.status in (400, 413)
    return False


@pytest.mark.parametrize("kind", FORMATS)
def test_broken_files_are_pictures_or_refused(kind: str) -> None:
    pictures = sum(check(outcome(data)) for data in mutants(kind))
    assert MUTANTS // 20 < pictures < MUTANTS * 4 // 5


@pytest.mark.parametrize("kind", FORMATS)
def test_every_cut_is_a_picture_or_refused(kind: str) -> None:
    for data in seeds(kind):
        for end in range(0, len(data), max(1, len(data) // 150)):
            check(outcome(data[:end]))
