"""The input contract: how a picture becomes the model's pixels, as its reference does it."""

from __future__ import annotations

from io import BytesIO
from typing import Annotated, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field, model_validator
from torch.nn.functional import interpolate

from headpond.bundle.manifest import Manifest
from headpond.bundle.section import Section, read_section

Pixels = NDArray[np.uint8]
"""`(height, width, 3)`: red, green, blue."""

_Side = Annotated[int, Field(ge=1, le=4096)]
_Channel = Annotated[float, Field(allow_inf_nan=False)]
_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}

_SAME_IN_TORCH = ("bilinear", "bicubic")
"""Filters that torch has too, antialiased as Pillow does it and four times as fast."""

_MOST_SPARE = 4
"""Up to so many times the crop's pixels it is quicker to resize all of a picture with torch."""


class Size(Section):
    """Rows and columns."""

    height: _Side
    width: _Side


class Preprocessing(Section):
    """What a bundle's `input` says.

    Attributes:
        size: The model's input.
        shortest_edge: The picture is resized so that its shorter side is this, then cropped
            to `size` at its centre; None resizes to `size`, whatever the proportions.
        interpolation: The filter, antialiased as Pillow does it.
        crop_offset: How a crop that can't be in the very middle is placed: `round` (half to
            even, as torchvision and timm do) or `floor` (as transformers does).
        rescale: What pixels (0 to 255) are multiplied with before they are normalised.
        mean: Subtracted from red, green and blue after that.
        std: Divides what is left.
    """

    size: Size
    shortest_edge: _Side | None = None
    interpolation: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
    crop_offset: Literal["round", "floor"] = "round"
    rescale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1 / 255
    mean: tuple[_Channel, _Channel, _Channel]
    std: tuple[
        Annotated[_Channel, Field(gt=0)],
        Annotated[_Channel, Field(gt=0)],
        Annotated[_Channel, Field(gt=0)],
    ]

    @model_validator(mode="after")
    def _crop_fits(self) -> Self:
        most = max(self.size.height, self.size.width)
        if self.shortest_edge is not None and self.shortest_edge < most:
            raise ValueError(f"a crop of {most} does not fit into {self.shortest_edge}")
        return self

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Read a bundle's input contract.

        Raises:
            BundleError: Names the first field that is not valid.
        """
        return read_section(cls, manifest.input, "input")

    @property
    def needed(self) -> int:
        """Pixels that a picture's sides must have, so that reducing it costs nothing."""
        return self.shortest_edge or max(self.size.height, self.size.width)

    @property
    def pixel_mean(self) -> NDArray[np.float32]:
        """What is subtracted from pixels of 0 to 255, channel by channel."""
        return np.asarray([mean / self.rescale for mean in self.mean], np.float32)

    @property
    def pixel_std(self) -> NDArray[np.float32]:
        """What divides such pixels after that."""
        return np.asarray([std / self.rescale for std in self.std], np.float32)

    def pixels(self, picture: Image.Image) -> Pixels:
        """Resize and crop a picture of mode `RGB`.

        However long the picture is, not much more is computed than what the crop needs. The
        result is that of Pillow's resizing all of it and cropping, but for rounding between
        rows and columns.
        """
        height, width = self.size.height, self.size.width
        across, down = self._resized(picture.width, picture.height)
        left, top = self._offset(across - width), self._offset(down - height)
        # Where rows and columns shrink alike it does not matter which are resized first.
        alike = self.shortest_edge is not None and self.interpolation in _SAME_IN_TORCH
        if alike and across * down <= _MOST_SPARE * height * width:
            resized = self._resize(picture, across, down)
            return resized[top : top + height, left : left + width]
        box = (
            left * picture.width / across,
            top * picture.height / down,
            (left + width) * picture.width / across,
            (top + height) * picture.height / down,
        )
        cropped = picture.resize((width, height), _FILTERS[self.interpolation], box=box)
        return np.asarray(cropped)

    def _resize(self, picture: Image.Image, across: int, down: int) -> Pixels:
        whole = torch.from_numpy(np.array(picture)).permute(2, 0, 1).unsqueeze(0)
        size = (down, across)
        (resized,) = interpolate(whole, size=size, mode=self.interpolation, antialias=True)
        pixels: Pixels = resized.permute(1, 2, 0).numpy()
        return pixels

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        """Return width and height after resizing, before the crop."""
        edge = self.shortest_edge
        if edge is None:
            return self.size.width, self.size.height
        if width <= height:
            return edge, int(edge * height / width)
        return int(edge * width / height), edge

    def _offset(self, spare: int) -> int:
        return round(spare / 2) if self.crop_offset == "round" else spare // 2


def as_png(pixels: Pixels) -> bytes:
    """Return the model's pixels as a file that people can look at."""
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()
