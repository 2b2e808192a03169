"""A scheduler of one picture's own, where what it does is not linear."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headpond_workloads.diffusion.engine.schedulers import scaled_input, step_options

_PLACES = 1021
"""Of latents to try; no schedule has so many steps, so that its own tensors are others."""


class Solo:
    """Steps the latents of one picture by its scheduler, as diffusers' pipeline would.

    Clipping and thresholding look at the values themselves, so that no factors tell what they
    do. It costs a picture less than a millisecond a step; the forward is shared all the same.
    """

    def __init__(self, scheduler: Any, timesteps: Tensor) -> None:
        """Keep a scheduler.

        Args:
            scheduler: Laid out for its steps, none of which is done.
            timesteps: Those that are run.
        """
        self._scheduler = scheduler
        self._timesteps = timesteps

    def copy(self) -> Solo:
        """Return one that begins where this one is."""
        return Solo(copy.deepcopy(self._scheduler), self._timesteps)

    def step(
        self, at: int, latents: Tensor, prediction: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Do a step; each is done once, in their order.

        Args:
            at: Steps that are done.
            latents: `[channels, rows, columns]`.
            prediction: Of the same shape.
            generator: Of the picture's noise.

        Returns:
            The latents after it.
        """
        timestep, given = self._timesteps[at], latents[None]
        scaled_input(self._scheduler, given, timestep)  # some find their place by it
        after: Tensor = self._scheduler.step(
            prediction[None],
            timestep,
            given,
            **step_options(self._scheduler, generator),
            return_dict=False,
        )[0]
        return after[0]

    def held(self) -> int:
        """Do all steps; return how many tensors of the latents' size were kept, at most."""
        most = 0
        generator = torch.Generator().manual_seed(0)
        latents = torch.zeros(1, 1, _PLACES)
        for at in range(len(self._timesteps)):
            latents = self.step(at, latents, torch.zeros_like(latents), generator)
            kept = _tensors(vars(self._scheduler).values())
            most = max(most, sum(each.numel() == _PLACES for each in kept))
        return most


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
