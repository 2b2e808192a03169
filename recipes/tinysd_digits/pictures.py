"""scikit-learn's handwritten digits, coloured, on black, 32 pixels wide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from prompts import COLOURS, NAMES

SIDE, DIGIT_SIDE = 32, 24
_TRAINED = 1500
_SHIFT = 2


@dataclass(frozen=True)
class Digits:
    """Handwritten digits.

    Attributes:
        shapes: `[digits, 24, 24]`, 0 to 1.
        labels: `[digits]`.
    """

    shapes: Tensor
    labels: NDArray[np.int64]


def split(seed: int = 0) -> tuple[Digits, Digits]:
    """Return digits to train with, and others that are held out."""
    found = load_digits()
    order = np.random.default_rng(seed).permutation(len(found.target))
    shapes = torch.from_numpy(found.images.astype(np.float32) / 16)[:, None]
    large = functional.interpolate(shapes, size=DIGIT_SIDE, mode="bicubic", align_corners=False)
    sharp = (large.clamp(0, 1) * 1.4 - 0.2).clamp(0, 1)[:, 0]
    first, rest = order[:_TRAINED], order[_TRAINED:]
    labels = found.target.astype(np.int64)
    return Digits(sharp[first], labels[first]), Digits(sharp[rest], labels[rest])


def drawn(shapes: Tensor, colours: Sequence[int], rng: np.random.Generator) -> Tensor:
    """Return pictures `[digits, 3, 32, 32]`, 0 to 1, each a little off the middle."""
    margin = (SIDE - DIGIT_SIDE) // 2
    canvas = torch.zeros(len(shapes), 1, SIDE, SIDE)
    places = margin + rng.integers(-_SHIFT, _SHIFT + 1, (len(shapes), 2))
    for at, (top, left) in enumerate(places):
        canvas[at, 0, top : top + DIGIT_SIDE, left : left + DIGIT_SIDE] = shapes[at]
    paint = torch.tensor([COLOURS[NAMES[colour]] for colour in colours])
    return canvas * paint[:, :, None, None]
