"""Ask a running platform for pictures of every digit in every colour, and lay them on a sheet.

    python recipes/tinysd_digits/contact_sheet.py sheet.png

The server is `HEADPOND_BASE_URL`, else http://localhost:8000. Below the digits stands one
edit: a red seven, painted anew as a blue nought, with more and more strength.
"""

from __future__ import annotations

import argparse
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from headpond import Client
from prompts import NAMES, NUMERALS, prompt

MODEL = "tinysd-digits"
SEED = 7
SCALE, GAP = 3, 4
AT_ONCE = 16
"""Calls under way at once: they share the steps of the denoiser."""


def digits(client: Client) -> list[Image.Image]:
    """Return a picture of every digit in every colour, all of them asked for at once."""

    def painted(wanted: str) -> Image.Image:
        answer = client.images.generate(model=MODEL, prompt=wanted, seed=SEED)
        return opened(answer.data[0].content)

    prompts = [prompt(digit, colour) for colour in NAMES for digit in range(len(NUMERALS))]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(painted, prompts))


def edits(client: Client) -> list[Image.Image]:
    """Return one picture changed into another with ten strengths."""
    source = client.images.generate(model=MODEL, prompt="a red seven", seed=SEED).data[0].content

    def edited(tenths: int) -> Image.Image:
        answer = client.images.edit(
            model=MODEL, image=source, prompt="a blue zero", strength=tenths / 10, seed=SEED
        )
        return opened(answer.data[0].content)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(edited, range(1, 11)))


def opened(content: bytes) -> Image.Image:
    """Return a file as a picture."""
    return Image.open(io.BytesIO(content)).convert("RGB")


def sheet_of(pictures: list[Image.Image]) -> Image.Image:
    """Lay pictures of one size in rows of ten, enlarged without smoothing."""
    width, height = pictures[0].width * SCALE, pictures[0].height * SCALE
    rows = -(-len(pictures) // len(NUMERALS))
    size = (len(NUMERALS) * (width + GAP) + GAP, rows * (height + GAP) + GAP)
    sheet = Image.new("RGB", size, "white")
    for at, picture in enumerate(pictures):
        row, column = divmod(at, len(NUMERALS))
        enlarged = picture.resize((width, height), Image.Resampling.NEAREST)
        sheet.paste(enlarged, (GAP + column * (width + GAP), GAP + row * (height + GAP)))
    return sheet


def main() -> None:
    """Write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sheet", type=Path, help="the PNG to write")
    path: Path = parser.parse_args().sheet
    with Client() as client:
        pictures = digits(client) + edits(client)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet_of(pictures).save(path, optimize=True)
    print(f"{len(pictures)} pictures: {path}")


if __name__ == "__main__":
    main()
