"""Between pixels and latents: one picture at a time, so that none depends on another."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headpond_workloads.diffusion.engine import memory

Image = NDArray[np.uint8]
"""`[height, width, 3]`, red, green and blue."""


_TILE_PLACES = 64
"""Places of the latents that a tile is wide, at most."""


class Autoencoder:
    """Decodes latents and encodes pictures, as diffusers' pipelines do.

    On a CPU batches of pictures gain little here, so each is computed alone; then its memory
    is bounded and its pixels are the pipeline's. A large one, or one that memory lacks for,
    is decoded in overlapping tiles.
    """

    def __init__(
        self, network: Any, device: torch.device, dtype: torch.dtype, *, tile_pixels: int
    ) -> None:
        """Take over the network.

        Args:
            network: One of diffusers' autoencoders.
            device: Where it is computed.
            dtype: What it is computed in.
            tile_pixels: Pictures of more are decoded in tiles.
        """
        self.network = network.to(device)
        self._device = device
        self._dtype = dtype
        self._tile_pixels = tile_pixels
        config = network.config
        self._scaling = float(config["scaling_factor"])
        self._shift = float(config.get("shift_factor") or 0.0)
        self.channels = int(config["latent_channels"])
        blocks = config.get("block_out_channels") or config["encoder_block_out_channels"]
        self.factor = 2 ** (len(blocks) - 1)

    @property
    def draws(self) -> bool:
        """Whether encoding draws noise."""
        return "encoder_block_out_channels" not in self.network.config

    def decode(self, latents: Tensor) -> Image:
        """Return the pixels of latents `[channels, rows, columns]`."""
        return to_image(self.decoded(latents))

    def decoded(self, latents: Tensor) -> Tensor:
        """Return the pixels of latents as `[3, height, width]`, -1 to 1 or a little more."""
        given = latents.to(self._device, self._dtype)[None] / self._scaling + self._shift
        pixels = latents[0].numel() * self.factor**2
        if pixels > self._tile_pixels:
            return self._in_tiles(given)
        try:
            return self._whole(given)
        except memory.FAILURES as error:
            if not memory.is_lack(error):
                raise
        memory.give_back()
        return self._in_tiles(given)

    def encode(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """Return the latents of a picture.

        Args:
            image: `[1, 3, height, width]`, -1 to 1.
            generator: Drawn from by autoencoders that encode to a distribution.

        Returns:
            `[channels, rows, columns]`, float32.
        """
        found = self.network.encode(image.to(self._device, self._dtype))
        latents = found.latent_dist.sample(generator) if self.draws else found.latents
        encoded: Tensor = (self._scaling * (latents - self._shift)).float()[0]
        return encoded

    def _whole(self, given: Tensor) -> Tensor:
        pixels: Tensor = self.network.decode(given, return_dict=False)[0]
        return pixels[0].float()

    def _in_tiles(self, given: Tensor) -> Tensor:
        """Decode overlapping tiles, and fade from one to the next.

        Not by diffusers' own tiling, which takes every tiny autoencoder to be of one depth.
        """
        rows, columns = given.shape[-2:]
        side = min(_TILE_PLACES, max(rows, columns) // 2)
        pixels = torch.zeros(3, rows * self.factor, columns * self.factor, device=given.device)
        weights = torch.zeros_like(pixels[:1])
        for top in _starts(rows, side):
            for left in _starts(columns, side):
                tile = self._whole(given[..., top : top + side, left : left + side])
                faded = _ramp(tile.shape[1])[:, None] * _ramp(tile.shape[2])[None]
                faded = faded.to(given.device)
                down = slice(top * self.factor, top * self.factor + tile.shape[1])
                right = slice(left * self.factor, left * self.factor + tile.shape[2])
                pixels[:, down, right] += faded * tile
                weights[:, down, right] += faded
        return pixels / weights


def _starts(places: int, side: int) -> list[int]:
    """Return where tiles begin; each covers a quarter of the one before, the last one more."""
    last = max(places - side, 0)
    return [*range(0, last, max(side - side // 4, 1)), last]


def _ramp(pixels: int) -> Tensor:
    """Return weights that rise to the middle of a tile, up to its quarter."""
    at = torch.arange(pixels)
    return torch.minimum(at + 1, pixels - at).clamp(max=max(pixels // 4, 1)).float()


def to_image(pixels: Tensor) -> Image:
    """Return pixels `[3, height, width]` of -1 to 1 as bytes, rounded as diffusers does."""
    shown = (pixels * 0.5 + 0.5).clamp(0, 1)
    scaled = shown.permute(1, 2, 0).float().cpu().numpy() * 255
    image: Image = scaled.round().astype(np.uint8)
    return image
