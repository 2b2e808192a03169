"""Pictures to begin from: decoded, of the asked-for size, as diffusers prepares them."""

from __future__ import annotations

import weakref
from hashlib import sha256

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from headpond.errors import InvalidRequest
from headpond_workloads.diffusion.engine.slot import Pixels
from headpond_workloads.diffusion.items import Source
from headpond_workloads.images.decoder import decode, decode_transparency

MAX_SOURCE_PIXELS = 50_000_000
"""The largest picture that is decoded, whatever becomes of it."""


class Sources:
    """Decodes what pictures begin from; those that begin alike share what was decoded.

    The pictures of one call do. Nothing is held but by the pictures themselves.
    """

    def __init__(self, factor: int) -> None:
        """Start with nothing decoded.

        Args:
            factor: Pixels that a place of the latents is wide.
        """
        self._factor = factor
        self._held: weakref.WeakValueDictionary[tuple[bytes, bytes, int, int], Pixels] = (
            weakref.WeakValueDictionary()
        )

    def pixels(self, source: Source, width: int, height: int) -> Pixels:
        """Return a picture, and its mask, at the size that is to be painted.

        Raises:
            InvalidRequest: A file can't be read, or the mask has another size or paints nothing.
            PayloadTooLarge: It has more than `MAX_SOURCE_PIXELS`.
        """
        image = sha256(source.image).digest()
        mask = b"" if source.mask is None else sha256(source.mask).digest()
        key = image, mask, width, height
        found = self._held.get(key)
        if found is None:
            found = self._held[key] = pixels_of(source, width, height, self._factor)
        return found


def pixels_of(source: Source, width: int, height: int, factor: int) -> Pixels:
    """Decode a picture, and its mask.

    Args:
        source: The files.
        width: Of the picture to be painted.
        height: Of the picture to be painted.
        factor: Pixels that a place of the latents is wide.

    Raises:
        InvalidRequest: A file can't be read, or the mask has another size or paints nothing.
        PayloadTooLarge: It has more than `MAX_SOURCE_PIXELS`.
    """
    limit = MAX_SOURCE_PIXELS
    # A reduced JPEG would not be diffusers' picture to the bit: nothing is reduced.
    picture = decode(source.image, max_pixels=limit, needed=0, param="image").image
    image = _resized(picture, width, height) * 2.0 - 1.0
    if source.mask is None:
        return Pixels(image=image, mask=None)
    shade = decode_transparency(source.mask, max_pixels=limit, param="mask")
    if shade.size != picture.size:
        raise InvalidRequest(
            f"the mask has {shade.size[0]} x {shade.size[1]} pixels, the image "
            f"{picture.size[0]} x {picture.size[1]}",
            param="mask",
        )
    painted = (_resized(shade, width, height) >= 0.5).float()
    mask = functional.interpolate(painted, size=(height // factor, width // factor))
    if not mask.any():
        raise InvalidRequest(
            "the mask leaves nothing to paint: no place of the latents is transparent by half",
            param="mask",
        )
    return Pixels(image=image, mask=mask[0])


def _resized(image: Image.Image, width: int, height: int) -> Tensor:
    """Return `[1, channels, height, width]`, 0 to 1."""
    resized = image.resize((width, height), Image.Resampling.LANCZOS)
    values = np.asarray(resized, np.float32) / 255.0
    if values.ndim == 2:
        values = values[:, :, None]
    return torch.from_numpy(values.transpose(2, 0, 1))[None]
