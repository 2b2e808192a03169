"""Finding the numbers of a schedule by giving its scheduler unit vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headpond_workloads.diffusion.engine.schedulers import scaled_input, step_options
from headpond_workloads.diffusion.engine.table import Begin, Table

_NEGLIGIBLE = 1e-6
"""Factors smaller than this, beside the largest of their step, are what rounding left."""


def probed(scheduler: Any, timesteps: Tensor, *, picture: bool) -> Table:
    """Find the numbers of a schedule; unit vectors lie side by side in one row of latents.

    Args:
        scheduler: Laid out for its steps; is used up.
        timesteps: Those that are run.
        picture: Whether the latents begin as a picture's with noise, not as noise alone.
    """
    steps = len(timesteps)
    places = 2 * steps + 2
    silent = 2 * steps  # where only the noise shows; the place behind it is for `begin`
    begin = _begin(scheduler, timesteps, picture=picture)
    scales, noises, draws, known, clean = [], [], [], [], []
    found = torch.zeros(steps, places, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for at, timestep in enumerate(timesteps):
        latents, prediction = _unit(places, 2 * at), _unit(places, 2 * at + 1)
        scaled = scaled_input(scheduler, latents, timestep)
        scales.append(float(scaled[..., 2 * at]))
        before = generator.get_state()
        options = step_options(scheduler, generator)
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


def _unit(places: int, at: int) -> Tensor:
    unit = torch.zeros(1, 1, 1, places)
    unit[..., at] = 1.0
    return unit
