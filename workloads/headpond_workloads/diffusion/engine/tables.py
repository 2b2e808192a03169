"""Schedules as numbers: what diffusers' schedulers do, for many requests at once.

A step of nearly every scheduler is linear in what it is given: the latents and the model's
predictions of this step and of those before, and fresh noise. The factors are found by giving
the scheduler unit vectors; a table holds them for each step. Requests whose schedulers, step
counts and places differ are then advanced together, by one sum of products. A scheduler that
is not linear is kept as an object for each picture, beside what a table still tells of it.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from headpond.errors import InvalidRequest
from headpond_workloads.diffusion.engine.probing import probed
from headpond_workloads.diffusion.engine.schedulers import (
    DiffusersScheduler,
    Layout,
    is_shifted,
    scaled_input,
    step_options,
)
from headpond_workloads.diffusion.engine.solo import Solo
from headpond_workloads.diffusion.engine.table import Table

_TOLERANCE = 1e-3
_KEPT_TABLES = 256
_TRIED = 64
_PLAIN = Layout()


class Tables:
    """Tables of one scheduler, kept for those who ask for the same again."""

    def __init__(
        self, scheduler: DiffusersScheduler, layout: Layout = _PLAIN, *, linear: bool = True
    ) -> None:
        """Keep the scheduler; it is copied for each table.

        Args:
            scheduler: Configured for the model.
            layout: What its pipeline tells it.
            linear: Whether factors tell all that a step does, as `is_affine` finds out.
        """
        self._scheduler = scheduler
        self._layout = layout
        self._linear = linear
        self._kept = lru_cache(maxsize=_KEPT_TABLES)(self._table)

    def table(
        self, steps: int, strength: float = 1.0, *, picture: bool = False, tokens: int = 0
    ) -> Table:
        """Return the table for a number of steps.

        Args:
            steps: As asked for.
            strength: The part of them that is run; the last one always is.
            picture: Whether the latents begin as a picture's with noise, not as noise alone.
            tokens: Of the picture, by which some schedules are shifted.

        Raises:
            InvalidRequest: The scheduler can't do so many steps.
        """
        return self._kept(steps, strength, picture, tokens if is_shifted(self._scheduler) else 0)

    def held(self, steps: int) -> int:
        """Return how many tensors of the latents' size a picture keeps between steps."""
        table = self.table(steps)
        return 2 * (table.window - 1) if table.solo is None else table.solo.copy().held()

    def _table(self, steps: int, strength: float, picture: bool, tokens: int) -> Table:
        try:
            scheduler = _laid_out(self._scheduler, self._layout, steps, tokens)
        except ValueError as error:
            raise InvalidRequest(str(error), param="num_inference_steps") from None
        skipped = self._layout.skipped(steps, strength) * scheduler.order
        skipped = min(skipped, len(scheduler.timesteps) - scheduler.order)
        timesteps = scheduler.timesteps[skipped:]
        if skipped and hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index(skipped)
        solo = None if self._linear else Solo(copy.deepcopy(scheduler), timesteps)
        try:
            table = probed(scheduler, timesteps, picture=picture)
        except IndexError:
            # Of steps that fall on one timestep, diffusers' schedulers skip the first.
            raise InvalidRequest(
                f"the scheduler can't tell {steps} steps apart", param="num_inference_steps"
            ) from None
        return table if solo is None else _without_factors(table, solo)


def is_affine(scheduler: DiffusersScheduler, steps: int, layout: Layout = _PLAIN) -> bool:
    """Say whether a table does to random latents what its scheduler does.

    Args:
        scheduler: Configured for the model.
        steps: How many to try.
        layout: What its pipeline tells it.
    """
    own = _laid_out(scheduler, layout, steps, 0)
    table = Tables(scheduler, layout).table(steps)
    generator, ours = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    source = torch.Generator().manual_seed(2)
    x = mine = torch.randn((1, 1, 1, _TRIED), generator=source) * table.begin.noise
    past: list[tuple[Tensor, Tensor]] = []
    for at, timestep in enumerate(own.timesteps):
        scaled_input(own, x, timestep)
        prediction = torch.randn(x.shape, generator=source)
        x = own.step(prediction, timestep, x, **step_options(own, generator), return_dict=False)[0]
        past.insert(0, (mine, prediction))
        mine = sum(
            (
                a * old + b * said
                for (a, b), (old, said) in zip(table.factors[at], past, strict=False)
            ),
            torch.zeros(()),
        )
        if table.draws[at]:
            mine = mine + table.noises[at] * torch.randn(x.shape, generator=ours)
        if not torch.allclose(x, mine, rtol=_TOLERANCE, atol=_TOLERANCE * float(x.abs().max())):
            return False
    return True


def _laid_out(scheduler: DiffusersScheduler, layout: Layout, steps: int, tokens: int) -> Any:
    """Return a copy of the scheduler with its steps laid out."""
    own: Any = copy.deepcopy(scheduler)
    own.set_timesteps(steps, **layout.told(scheduler, steps, tokens))
    return own


def _without_factors(table: Table, solo: Solo) -> Table:
    """Return what a table still tells where its factors are not those of the scheduler."""
    steps = table.steps
    return replace(
        table,
        factors=(((0.0, 0.0),),) * steps,
        noises=(0.0,) * steps,
        draws=(False,) * steps,
        window=1,
        solo=solo,
    )
