"""Let an independent classifier read what the bundle paints.

    python recipes/tinysd_digits/score.py bundles/tinysd-digits --sheet docs/images/digits.png

A support vector machine, trained on handwritten digits, reads each picture's digit; its colour
is the nearest of those that were asked for. The same machine reads held-out handwriting. Besides
is told how near pictures are to the digits the model was trained with, beside how near held-out
ones are: a model that had learnt them by heart would be nearer.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.svm import SVC

from headpond.bundle.store import open_bundle
from headpond.engine import EngineSettings, Quantum
from headpond_workloads.diffusion.engine.load import load
from headpond_workloads.diffusion.items import Painted, Picture
from pictures import DIGIT_SIDE, split
from prompts import COLOURS, NAMES, prompt

Floats = NDArray[np.floating[Any]]

PALETTE = np.array(list(COLOURS.values()))
TOGETHER = 8
ACROSS, MAGNIFIED = 10, 3


def features(shapes: Floats) -> Floats:
    """Return shapes around their centre of mass, at half the size."""
    found = []
    for shape in shapes:
        padded = np.pad(shape, DIGIT_SIDE)
        mass = padded.sum() + 1e-6
        along = np.arange(len(padded))
        top = round(float((padded.sum(1) * along).sum() / mass)) - DIGIT_SIDE // 2
        left = round(float((padded.sum(0) * along).sum() / mass)) - DIGIT_SIDE // 2
        own = padded[top : top + DIGIT_SIDE, left : left + DIGIT_SIDE]
        half = DIGIT_SIDE // 2
        found.append(own.reshape(half, 2, half, 2).mean((1, 3)).ravel())
    return np.array(found)


def painted(bundle: Path, wanted: list[Picture]) -> NDArray[np.uint8]:
    """Return the pictures `[pictures, height, width, 3]`."""
    engine = load(open_bundle(bundle), EngineSettings(state_bytes=2**28))
    files: list[bytes] = []
    for at in range(0, len(wanted), TOGETHER):
        slots = [engine.start(engine.plan(each, "")) for each in wanted[at : at + TOGETHER]]
        given: dict[int, bytes] = {}
        while len(given) < len(slots):
            running = [slot for slot in slots if id(slot) not in given]
            told = engine.step([Quantum(slot=slot, units=1) for slot in running])
            for slot, progress in zip(running, told, strict=True):
                if progress.error is not None:
                    raise progress.error
                for output in progress.outputs:
                    if isinstance(output, Painted):
                        given[id(slot)] = output.content
        files += [given[id(slot)] for slot in slots]
    return np.array([np.asarray(Image.open(io.BytesIO(file))) for file in files])


def nearest(own: Floats, others: Floats) -> float:
    """Return the mean distance to the nearest of the others."""
    apart = ((own[:, None] - others[None]) ** 2).sum(-1)
    return float(np.sqrt(apart.min(1)).mean())


def colours_of(pictures: Floats) -> NDArray[np.intp]:
    """Return which colour each picture has, by its brightest parts."""
    weights = pictures.max(-1, keepdims=True) ** 2
    mean = (pictures * weights).sum((1, 2)) / weights.sum((1, 2)).clip(1e-6)
    scaled = mean / mean.max(1, keepdims=True).clip(1e-6)
    known = PALETTE / PALETTE.max(1, keepdims=True)
    return ((scaled[:, None] - known[None]) ** 2).sum(-1).argmin(1)


def sheet(pictures: NDArray[np.uint8], path: Path) -> None:
    """Lay pictures side by side."""
    count = len(pictures) // ACROSS * ACROSS
    _, height, width, _ = pictures.shape
    rows = pictures[:count].reshape(-1, ACROSS, height, width, 3)
    whole = rows.transpose(0, 2, 1, 3, 4).reshape(-1, ACROSS * width, 3)
    size = whole.shape[1] * MAGNIFIED, whole.shape[0] * MAGNIFIED
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(whole).resize(size, Image.Resampling.NEAREST).save(path)


def main() -> None:
    """Paint, read, and print how often it was right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--pictures", type=int, default=240)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--guidance", type=float, default=4.0)
    parser.add_argument("--sheet", type=Path, help="where the first sixty are laid out")
    options = parser.parse_args()
    trained, held_out = split()
    known, unknown = features(trained.shapes.numpy()), features(held_out.shapes.numpy())
    reader = SVC(C=10, gamma="scale").fit(known, trained.labels)
    digits = np.arange(options.pictures) % 10
    colours = np.arange(options.pictures) // 10 % len(NAMES)
    pictures = painted(
        options.bundle,
        [
            Picture(
                prompt=prompt(int(digit), NAMES[colour], (at // 60) % 2 * 2),
                seed=at,
                steps=options.steps,
                guidance=options.guidance,
            )
            for at, (digit, colour) in enumerate(zip(digits, colours, strict=True))
        ],
    )
    values = pictures / 255
    own = features(values.max(-1))
    right, coloured = reader.predict(own) == digits, colours_of(values) == colours
    print(f"handwriting read right: {reader.score(unknown, held_out.labels):.3f}")
    print(f"pictures: {len(pictures)}, {options.steps} steps, guidance {options.guidance}")
    print(f"digit {right.mean():.3f}, colour {coloured.mean():.3f}", end=", ")
    print(f"both {(right & coloured).mean():.3f}")
    print(f"distance to the nearest trained digit: {nearest(own, known):.3f}", end=", ")
    print(f"of held-out ones {nearest(unknown, known):.3f}")
    if options.sheet is not None:
        sheet(pictures[:60], options.sheet)


if __name__ == "__main__":
    main()
