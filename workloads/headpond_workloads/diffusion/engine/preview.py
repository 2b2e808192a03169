"""A quick look at latents, before they are a picture."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from headpond.errors import BundleError
from headpond_workloads.diffusion.engine.autoencoder import Autoencoder, Image, to_image
from headpond_workloads.diffusion.engine.options import Preview

Look = Callable[[Tensor], Image]
"""From latents `[channels, rows, columns]` to pixels."""


def look_of(preview: Preview, autoencoder: Autoencoder) -> Look:
    """Return how a bundle looks at latents.

    Raises:
        BundleError: Its factors are not for its latents.
    """
    if preview.kind == "decoder":
        return autoencoder.decode
    if len(preview.factors) != autoencoder.channels + 1:
        raise BundleError(
            f"there are {autoencoder.channels} channels, so {autoencoder.channels + 1} rows",
            param="execution.options.preview.factors",
        )
    return Linear(torch.tensor(preview.factors), autoencoder.factor)


class Linear:
    """Colours as sums of the channels, each place a square of the picture."""

    def __init__(self, factors: Tensor, size: int) -> None:
        """Keep the factors `[channels + 1, 3]` and the pixels that a place is wide."""
        self._factors = factors
        self._size = float(size)

    def __call__(self, latents: Tensor) -> Image:
        """Return the picture, of its full size."""
        places = latents.float().cpu().permute(1, 2, 0)
        colours = places @ self._factors[:-1] + self._factors[-1]
        shown = functional.interpolate(colours.permute(2, 0, 1)[None], scale_factor=self._size)
        return to_image(shown[0])
