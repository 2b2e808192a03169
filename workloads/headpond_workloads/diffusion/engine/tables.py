"""A schedule as numbers: what diffusers' schedulers do, for many requests at once.

A step of nearly every scheduler is linear in what it is given: the latents and the model's
predictions of this step and of those before, and fresh noise. The factors are found by giving
the scheduler unit vectors; a table holds them for each step. Requests whose schedulers, step
counts and places differ are then advanced together, by one sum of products.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from headpond.errors import InvalidRequest
from headpond_workloads.diffusion.engine.schedulers import DiffusersScheduler

_NEGLIGIBLE = 1e-6
"""Factors smaller than this, beside the largest of their step, are what rounding left."""

_TOLERANCE = 1e-3
_KEPT_TABLES = 256
_TRIED = 64


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Begin:
    """How the first latents are made: `source` times a picture's, plus `noise` times noise."""

    source: float
    noise: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Table:
    """What happens in each of `steps` steps.

    Attributes:
        timesteps: What the model is told; one for each step.
        scales: What the latents are multiplied by before the model sees them.
        factors: For each step the factors of the latents and the prediction of this step,
            of the step before, and so on: pairs, as many as `window`.
        noises: The factor of fresh noise.
        draws: Whether the step draws noise, even if its factor is 0.
        window: Steps that are looked at: 1 where none before counts.
        begin: How the latents begin.
        known: For each step, how the latents of a known picture look after it: factors of
            the picture's and of the noise they began with.
        clean: For each step, factors of the scaled latents and the prediction whose sum is
            the picture as the model sees it.
    """

    timesteps: tuple[float, ...]
    scales: tuple[float, ...]
    factors: tuple[tuple[tuple[float, float], ...], ...]
    noises: tuple[float, ...]
    draws: tuple[bool, ...]
    window: int
    begin: Begin
    known: tuple[tuple[float, float], ...]
    clean: tuple[tuple[float, float], ...]

    @property
    def steps(self) -> int:
        """How many forwards it takes."""
        return len(self.timesteps)


class Tables:
    """Tables of one scheduler, kept for those who ask for the same again."""

    def __init__(self, scheduler: DiffusersScheduler, **given: float) -> None:
        """Keep the scheduler; it is copied for each table.

        Args:
            scheduler: Configured for the model.
            given: What `set_timesteps` gets besides, e.g. the `mu` of a shifted schedule.
        """
        self._scheduler = scheduler
        self._given = given
        self.table = lru_cache(maxsize=_KEPT_TABLES)(self._table)

    def _table(self, steps: int, strength: float = 1.0, *, picture: bool = False) -> Table:
        """Return the table for a number of steps.

        Args:
            steps: As asked for.
            strength: The part of them that is run.
            picture: Whether the latents begin as a picture's with noise, not as noise alone.

        Raises:
            InvalidRequest: The scheduler can't do so many steps, or none is left.
        """
        scheduler: Any = copy.deepcopy(self._scheduler)
        try:
            scheduler.set_timesteps(steps, **self._given)
        except ValueError as error:
            raise InvalidRequest(str(error), param="num_inference_steps") from None
        skipped = max(steps - min(int(steps * strength), steps), 0)
        timesteps = scheduler.timesteps[skipped * scheduler.order :]
        if not len(timesteps):
            raise InvalidRequest(
                f"a strength of {strength} leaves none of {steps} steps", param="strength"
            )
        if skipped and hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index(skipped * scheduler.order)
        try:
            return _probed(scheduler, timesteps, picture=picture)
        except IndexError:
            # Of steps that fall on one timestep, diffusers' schedulers skip the first.
            raise InvalidRequest(
                f"the scheduler can't tell {steps} steps apart", param="num_inference_steps"
            ) from None


def is_affine(scheduler: DiffusersScheduler, steps: int, **given: float) -> bool:
    """Say whether a table does to random latents what its scheduler does.

    Args:
        scheduler: Configured for the model.
        steps: How many to try.
        given: What `set_timesteps` gets besides.
    """
    own: Any = copy.deepcopy(scheduler)
    own.set_timesteps(steps, **given)
    table = Tables(scheduler, **given).table(steps)
    generator, ours = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    source = torch.Generator().manual_seed(2)
    x = mine = torch.randn((1, 1, 1, _TRIED), generator=source) * table.begin.noise
    past: list[tuple[Tensor, Tensor]] = []
    for at, timestep in enumerate(own.timesteps):
        _scaled(own, x, timestep)
        prediction = torch.randn(x.shape, generator=source)
        x = own.step(prediction, timestep, x, **_options(own, generator), return_dict=False)[0]
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


def _probed(scheduler: Any, timesteps: Tensor, *, picture: bool) -> Table:
    """Find the factors; unit vectors lie side by side in one row of latents."""
    steps = len(timesteps)
    places = 2 * steps + 2
    silent = 2 * steps  # where only the noise shows; the place behind it is for `begin`
    begin = _begin(scheduler, timesteps, picture=picture)
    scales, noises, draws, known, clean = [], [], [], [], []
    found = torch.zeros(steps, places, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for at, timestep in enumerate(timesteps):
        latents, prediction = _unit(places, 2 * at), _unit(places, 2 * at + 1)
        scaled = _scaled(scheduler, latents, timestep)
        scales.append(float(scaled[..., 2 * at]))
        before = generator.get_state()
        options = _options(scheduler, generator)
        after = scheduler.step(prediction, timestep, latents, **options, return_dict=False)[0]
        drawn = not torch.equal(before, generator.get_state())
        row = after.flatten().double()
        noise = 0.0
        if drawn:
            again = torch.Generator()
            again.set_state(before)
            fresh = torch.randn(after.shape, generator=again).flatten().double()
            noise = float((row[silent:] * fresh[silent:]).sum() / fresh[silent:].square().sum())
            row = row - noise * fresh
        found[at] = row
        noises.append(noise if abs(noise) > _NEGLIGIBLE else 0.0)
        draws.append(drawn)
        known.append(_known(scheduler, timesteps, at))
        clean.append(_clean(scheduler, timestep))
    factors = _factors(found, steps)
    return Table(
        timesteps=tuple(timesteps.double().tolist()),
        scales=tuple(scales),
        factors=factors,
        noises=tuple(noises),
        draws=tuple(draws),
        window=len(factors[0]),
        begin=begin,
        known=tuple(known),
        clean=tuple(clean),
    )


def _factors(found: Tensor, steps: int) -> tuple[tuple[tuple[float, float], ...], ...]:
    """Sort what was found by how many steps before it came; drop what is nothing everywhere."""
    least = found.abs().amax(dim=1, keepdim=True) * _NEGLIGIBLE
    found = torch.where(found.abs() > least, found, 0.0)
    pairs = found[:, : 2 * steps].reshape(steps, steps, 2)
    at = torch.arange(steps)
    some = pairs.abs().amax(dim=2) > 0
    window = int(torch.where(some, at[:, None] - at[None, :], 0).max()) + 1
    return tuple(
        tuple(
            (float(pairs[step, step - back, 0]), float(pairs[step, step - back, 1]))
            if step >= back
            else (0.0, 0.0)
            for back in range(window)
        )
        for step in range(steps)
    )


def _begin(scheduler: Any, timesteps: Tensor, *, picture: bool) -> Begin:
    if not picture:
        return Begin(source=0.0, noise=float(getattr(scheduler, "init_noise_sigma", 1.0)))
    source, noise = _noised(scheduler, timesteps[:1])
    return Begin(source=source, noise=noise)


def _known(scheduler: Any, timesteps: Tensor, at: int) -> tuple[float, float]:
    """Return how a known picture's latents look after step `at`, to those who inpaint."""
    if at + 1 == len(timesteps):
        return 1.0, 0.0
    return _noised(scheduler, timesteps[at + 1 : at + 2])


def _noised(scheduler: Any, timestep: Tensor) -> tuple[float, float]:
    picture, noise = _unit(2, 0), _unit(2, 1)
    if hasattr(scheduler, "add_noise"):
        mixed = scheduler.add_noise(picture, noise, timestep)
    else:
        mixed = scheduler.scale_noise(picture, timestep, noise)
    source, noised = mixed.flatten().double().tolist()
    return source, noised


def _clean(scheduler: Any, timestep: Tensor) -> tuple[float, float]:
    """Return the factors of scaled latents and prediction that make a clean picture."""
    if not hasattr(scheduler, "alphas_cumprod"):  # flow matching
        return 1.0, -float(timestep) / scheduler.config["num_train_timesteps"]
    kept = float(scheduler.alphas_cumprod[int(timestep)])
    signal, noise = kept**0.5, (1.0 - kept) ** 0.5
    prediction = scheduler.config["prediction_type"]
    if prediction == "v_prediction":
        return signal, -noise
    if prediction == "sample":
        return 0.0, 1.0
    return 1.0 / signal, -noise / signal


def _scaled(scheduler: Any, latents: Tensor, timestep: Tensor) -> Tensor:
    if not hasattr(scheduler, "scale_model_input"):
        return latents
    scaled: Tensor = scheduler.scale_model_input(latents, timestep)
    return scaled


def _options(scheduler: Any, generator: torch.Generator) -> dict[str, object]:
    """Return what diffusers' pipelines pass to a step besides."""
    accepted = inspect.signature(scheduler.step).parameters
    given: dict[str, object] = {"eta": 0.0, "generator": generator}
    return {name: value for name, value in given.items() if name in accepted}


def _unit(places: int, at: int) -> Tensor:
    unit = torch.zeros(1, 1, 1, places)
    unit[..., at] = 1.0
    return unit
