"""Files of every format and kind become upright pictures in sRGB, within bounds."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from headpond.errors import InvalidRequest, PayloadTooLarge
from headpond_workloads.images.decoder import decode, decode_transparency
from headpond_workloads.images.jpeg import jpeg
from headpond_workloads.images.png import png
from workloads.images.pictures import (
    BOMBS,
    CUT_UP,
    FORMATS,
    METADATA,
    apart,
    array,
    chunk,
    jpeg_with,
    linear_grey_profile,
    png_of_zeros,
    png_with,
    run_length_bmp,
    saved,
    scene,
    segment,
    swapped_profile,
)

MOST = 50_000_000


def decoded(data: bytes, *, max_pixels: int = MOST, needed: int = 4096) -> Image.Image:
    picture = decode(data, max_pixels=max_pixels, needed=needed, param="image").image
    assert picture.mode == "RGB"
    return picture


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_exact_formats_come_as_they_are(kind: str) -> None:
    picture = decode(saved(scene(), kind), max_pixels=MOST, needed=32, param="image")
    assert apart(picture.image, scene()) == 0
    assert picture.pixels == 64 * 48


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF"])
def test_other_formats_come_as_pillow_reads_them(kind: str) -> None:
    data = saved(scene(), kind)
    assert apart(decoded(data), Image.open(io.BytesIO(data)).convert("RGB")) == 0


ON_WHITE = "RGBA", "LA"


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        *(("1", kind) for kind in ("PNG", "BMP", "GIF")),
        *(("L", kind) for kind in FORMATS),
        *(("P", kind) for kind in ("PNG", "BMP", "GIF")),
        *(("LA", kind) for kind in ("PNG",)),
        *(("RGBA", kind) for kind in ("PNG", "WEBP")),
        ("CMYK", "JPEG"),
        ("RGB", "PNG"),
    ],
)
def test_every_mode_becomes_rgb(mode: str, kind: str) -> None:
    picture = scene().convert(mode)
    options: dict[str, object] = {"lossless": True} if kind == "WEBP" else {}
    if kind == "JPEG":
        options["quality"] = 100
    expected = picture.convert("RGB")
    tolerance = 6 if kind == "JPEG" else 0
    assert apart(decoded(saved(picture, kind, **options)), expected) <= tolerance


def test_sixteen_bits_keep_the_upper_eight() -> None:
    wide = (np.arange(64 * 48, dtype=np.uint32) * 65535 // (64 * 48 - 1)).astype(np.uint16)
    data = saved(Image.fromarray(wide.reshape(48, 64)), "PNG")
    grey = array(decoded(data))[..., 0]
    assert (grey == (wide.reshape(48, 64) >> 8)).all()
    assert grey.max() == 255
    assert np.unique(grey).size > 200


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("RGBA", (200, 0, 100, 0), (255, 255, 255)),
        ("RGBA", (200, 0, 100, 255), (200, 0, 100)),
        ("RGBA", (0, 0, 0, 128), (127, 127, 127)),
        ("LA", (0, 0), (255, 255, 255)),
        ("LA", (100, 255), (100, 100, 100)),
    ],
)
def test_what_is_transparent_lies_on_white(
    mode: str, colour: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    data = saved(Image.new(mode, (5, 4), colour), "PNG")
    assert apart(array(decoded(data))[0, 0], np.asarray(expected, np.uint8)) <= 1


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_transparent_palette_entry_is_white(kind: str) -> None:
    picture = Image.new("P", (4, 2), 1)
    picture.putpalette([10, 20, 30, 40, 50, 60])
    picture.paste(0, (0, 0, 2, 2))
    pixels = array(decoded(saved(picture, kind, transparency=0)))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, 3].tolist() == [40, 50, 60]


def test_a_transparent_colour_of_a_png_is_white() -> None:
    picture = Image.new("RGB", (4, 2), (1, 2, 3))
    picture.paste((9, 8, 7), (2, 0, 4, 2))
    pixels = array(decoded(saved(picture, "PNG", transparency=(1, 2, 3))))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, 3].tolist() == [9, 8, 7]


def deep_png(colours: NDArray[np.uint16], transparent: tuple[int, ...]) -> bytes:
    """A PNG of 16 bits, grey [rows, columns] or RGB [rows, columns, 3], one colour clear."""
    header = struct.pack(
        ">IIBBBBB", colours.shape[1], colours.shape[0], 16, 2 if colours.ndim == 3 else 0, 0, 0, 0
    )
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in colours)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"tRNS", struct.pack(f">{len(transparent)}H", *transparent))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def test_the_transparent_grey_of_sixteen_bits_is_white_and_told_by_all_of_them() -> None:
    data = deep_png(np.asarray([[0x1234, 0x1235]], np.uint16), (0x1234,))
    assert array(decoded(data))[0].tolist() == [[255] * 3, [0x12] * 3]
    clear = decode_transparency(data, max_pixels=MOST, param="mask")
    assert array(clear)[0].tolist() == [255, 0]


def test_the_transparent_colour_of_sixteen_bits_is_white() -> None:
    colours = np.asarray([[[0x1234, 0, 0xFFFF], [0x4000, 0x8000, 0x0101]]], np.uint16)
    pixels = array(decoded(deep_png(colours, (0x1234, 0, 0xFFFF))))
    assert pixels[0].tolist() == [[255, 255, 255], [0x40, 0x80, 0x01]]


def test_imagemagicks_orientation_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    lines = b"\nexif\n      34\n" + exif.tobytes().hex().encode()
    raw = chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(lines))
    assert decoded(png_with(raw)).size == (48, 64)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_orientation_is_applied(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, object] = {"lossless": True} if kind == "WEBP" else {}
    data = saved(scene(), kind, exif=exif, **options)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert apart(decoded(data), expected.convert("RGB")) == 0
    assert decoded(data).size == ((64, 48) if orientation < 5 else (48, 64))


@pytest.mark.parametrize("orientation", [0, 9, 60_000])
def test_an_orientation_that_is_none_is_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert decoded(saved(scene(), "JPEG", exif=exif)).size == (64, 48)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("exif", [b"Exif\0\0", b"Exif\0\0MM\0*\0\0\0\xff", b"Exif\0\0junk" * 9])
def test_metadata_that_cannot_be_read_is_ignored(exif: bytes) -> None:
    assert apart(decoded(saved(scene(), "PNG", exif=exif)), scene()) == 0


def test_a_profile_leads_to_srgb() -> None:
    red = Image.new("RGB", (8, 8), (255, 0, 0))
    for kind in ("PNG", "JPEG", "WEBP"):
        pixel = array(decoded(saved(red, kind, icc_profile=swapped_profile())))[4, 4]
        assert pixel[2] > 245
        assert pixel[0] < 20


def test_a_grey_profile_leads_to_srgb_beside_transparency_too() -> None:
    for mode, colour in (("L", 64), ("LA", (64, 255))):
        picture = Image.new(mode, (8, 8), colour)
        pixel = array(decoded(saved(picture, "PNG", icc_profile=linear_grey_profile())))[4, 4]
        # A quarter of the light is 137 in sRGB.
        assert all(abs(int(value) - 137) <= 2 for value in pixel)


@pytest.mark.parametrize(
    "profile",
    [b"no profile at all", swapped_profile()[:200], linear_grey_profile()],
    ids=["no profile", "cut off", "of another colour space"],
)
def test_a_profile_that_is_no_use_is_ignored(profile: bytes) -> None:
    assert apart(decoded(saved(scene(), "PNG", icc_profile=profile)), scene()) == 0


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP"])
def test_the_first_frame_of_an_animation_counts(kind: str) -> None:
    options: dict[str, object] = {"lossless": True} if kind == "WEBP" else {}
    frames = [Image.new("RGB", (9, 6), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert apart(decoded(data), frames[0]) == 0


def test_a_large_jpeg_is_decoded_at_reduced_scale() -> None:
    data = saved(scene(1600, 1200), "JPEG", quality=95)
    picture = decode(data, max_pixels=MOST, needed=128, param="image")
    assert picture.pixels == 1600 * 1200
    assert picture.image.size == (400, 300)
    whole = decode(data, max_pixels=MOST, needed=601, param="image").image
    assert whole.size == (1600, 1200)
    small, exact = (each.resize((64, 48)) for each in (picture.image, whole))
    assert np.abs(array(small).astype(int) - array(exact)).mean() < 1.1


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_from_its_header(kind: str) -> None:
    data = BOMBS[kind]()
    with pytest.raises(PayloadTooLarge, match="50000000 are allowed") as refusal:
        decode(data, max_pixels=MOST, needed=224, param="image.3")
    assert refusal.value.param == "image.3"
    assert refusal.value.status == 413


def many_scans(count: int) -> bytes:
    """A progressive JPEG whose last scan comes so often that there are `count`."""
    data = saved(scene(), "JPEG", progressive=True)
    first = jpeg(data).scans
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * (count - first) + data[-2:]


def test_a_jpeg_of_too_many_scans_is_refused() -> None:
    assert jpeg(many_scans(64)).scans == 64
    assert decoded(many_scans(64)).size == (64, 48)
    with pytest.raises(InvalidRequest, match="64 scans"):
        decoded(many_scans(65))


def test_only_scans_are_counted() -> None:
    markers = b"\xff\xda\x00\x02" * 200
    exif = b"Exif\0\0" + markers
    with_junk = saved(scene(), "JPEG", exif=exif, comment=markers) + markers
    assert jpeg(with_junk).scans == 1


@pytest.mark.parametrize("kind", CUT_UP)
def test_a_file_in_very_many_parts_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="more than 16384 parts") as refusal:
        decoded(CUT_UP[kind]())
    assert refusal.value.param == "image"


@pytest.mark.parametrize("kind", METADATA)
def test_metadata_is_not_read_by_whoever_reads_all_of_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise MemoryError("metadata was read")

    monkeypatch.setattr(Image.Exif, "load", forbidden)
    assert decoded(METADATA[kind]()).size == (64, 48)


def test_a_jpeg_of_very_many_tables_is_refused() -> None:
    tables = segment(0xDB, (b"\0" + b"\1" * 64) * 900)
    assert decoded(jpeg_with(tables * 4)).size == (64, 48)
    with pytest.raises(InvalidRequest, match="broken"):
        decoded(jpeg_with(tables * 5))


def test_fill_bytes_within_a_jpeg_mean_nothing() -> None:
    data = saved(scene(), "JPEG")
    filled = data[:-2] + b"\xff" * 2**20 + data[-2:]
    assert apart(decoded(filled), decoded(data)) == 0
    assert len(jpeg(filled).data) < 2 * len(data)


def test_a_run_length_encoded_bmp_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="run-length") as refusal:
        decoded(run_length_bmp(10))
    assert refusal.value.status == 400


def test_one_profile_is_unpacked_however_many_there_are() -> None:
    swapped, grey = (
        chunk(b"iCCP", b"a\0\0" + zlib.compress(profile))
        for profile in (swapped_profile(), linear_grey_profile())
    )
    data = png_with(swapped + grey * 100)
    assert apart(decoded(data), decoded(png_with(swapped))) == 0
    assert png(data).data.count(b"iCCP") == 1


def test_a_bomb_is_refused_before_its_pixels_are_there() -> None:
    bomb = png_of_zeros(12_000)
    assert len(bomb) < 100_000
    with pytest.raises(PayloadTooLarge):
        decode(bomb[:64], max_pixels=MOST, needed=224, param="image")


def test_the_cap_is_exact() -> None:
    data = saved(scene(), "PNG")
    assert decoded(data, max_pixels=64 * 48).size == (64, 48)
    with pytest.raises(PayloadTooLarge, match="64 x 48"):
        decoded(data, max_pixels=64 * 48 - 1)


MEMORY = """
import sys
from headpond.errors import PayloadTooLarge
from headpond_workloads.images.jpeg import jpeg
from headpond_workloads.images.decoder import decode
from workloads.images.pictures import BOMBS, png_of_zeros

def peak():
    # What getrusage says begins with the parent's.
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024

side = 3000
largest = png_of_zeros(side, bits=8, colour=6)
bombs = [make() for make in BOMBS.values()]
before = peak()
for bomb in bombs:
    try:
        decode(bomb, max_pixels=side * side, needed=224, param="image")
    except PayloadTooLarge:
        continue
    sys.exit("a bomb went off")
refused = peak() - before
decode(largest, max_pixels=side * side, needed=224, param="image")
print(refused, (peak() - before) / side**2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its peak")
def test_memory_is_bounded() -> None:
    """Refusing takes none, and decoding what is just allowed no more than is promised."""
    tests = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", MEMORY],
        check=True,
        capture_output=True,
        text=True,
        cwd=tests,
        env={"PYTHONPATH": ":".join([str(tests), *sys.path])},
    )
    refused, bytes_a_pixel = map(float, run.stdout.split())
    assert refused < 8 * 2**20
    assert bytes_a_pixel < 12.5


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"%PDF-1.7", b"II*\0" + b"\0" * 40, b"\x89PNG", b"RIFF\0\0\0\0WAVEfmt "],
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="PNG, JPEG, WEBP, GIF or BMP") as refusal:
        decode(data, max_pixels=MOST, needed=224, param="image")
    assert refusal.value.status == 400


@pytest.mark.parametrize("kind", FORMATS)
def test_a_truncated_file_is_refused(kind: str) -> None:
    data = saved(scene(), kind)
    for end in (len(data) // 2, 32, 14):
        with pytest.raises(InvalidRequest) as refusal:
            decode(data[:end], max_pixels=MOST, needed=224, param="image")
        assert refusal.value.param == "image"
