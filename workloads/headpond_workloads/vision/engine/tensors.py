"""Images as tensors: those that callers bring, and a batch as a network takes it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from headpond.errors import InvalidRequest
from headpond_workloads.vision.engine.forward import Floats
from headpond_workloads.vision.engine.preprocessing import Preprocessing, Size
from headpond_workloads.vision.items import TensorItem

MOST = 1e6
"""Normalised values are some units at most; far beyond, a network's outputs are not finite."""

Values = NDArray[np.uint8] | NDArray[np.float32]
"""`(height, width, 3)`: pixels of 0 to 255, or normalised values."""


def read_tensor(item: TensorItem, size: Size) -> Values:
    """Return a tensor's values, whichever way its axes go.

    Raises:
        InvalidRequest: It is not of the model's shape, or not finite.
    """
    last, first = (size.height, size.width, 3), (3, size.height, size.width)
    if item.shape not in (last, first):
        raise InvalidRequest(
            f"the tensor must have the shape {list(last)} or {list(first)}",
            param=f"{item.param}.shape",
        )
    dtype = np.dtype("<f4" if item.dtype == "float32" else "u1")
    if len(item.data) != prod(item.shape) * dtype.itemsize:
        raise InvalidRequest("the tensor's data does not fit its shape", param=f"{item.param}.data")
    flat: Values = np.frombuffer(item.data, dtype)
    values = flat.reshape(item.shape)
    if not (np.abs(values) <= MOST).all():  # false for NaN too
        raise InvalidRequest(
            f"the tensor's values must be finite, and lie within {MOST:g} of 0",
            param=f"{item.param}.data",
        )
    return values if item.shape == last else values.transpose(1, 2, 0)


def stack(images: Sequence[Values], preprocessing: Preprocessing, *, as_pixels: bool) -> Floats:
    """Return a batch `(images, height, width, 3)`; pixels and normalised values may mix.

    Args:
        images: Unsigned bytes are pixels, floats are normalised values.
        preprocessing: How one becomes the other.
        as_pixels: Whether the batch is to hold pixels of 0 to 255, else normalised values.
    """
    mean, std = preprocessing.pixel_mean, preprocessing.pixel_std
    batch = np.empty((len(images), *images[0].shape), np.float32)
    for at, image in enumerate(images):
        batch[at] = image
        are_pixels = image.dtype == np.uint8
        if as_pixels and not are_pixels:
            batch[at] *= std
            batch[at] += mean
        elif are_pixels and not as_pixels:
            batch[at] -= mean
            batch[at] /= std
    return batch
