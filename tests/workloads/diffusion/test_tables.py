"""Tables beside diffusers' own schedulers, over random configurations."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from headpond.errors import InvalidRequest
from headpond_workloads.diffusion.engine.schedulers import Layout, scheduler_of
from headpond_workloads.diffusion.engine.table import Table
from headpond_workloads.diffusion.engine.tables import Tables, is_affine
from headpond_workloads.diffusion.items import Scheduler

SHAPE = (1, 4, 8, 8)
RELATIVE_ERROR = 5e-6
STEEP, STEEP_ERROR = "squaredcos_cap_v2", 1e-3
"""Its first steps divide by a signal of a thousandth, so that float32's rounding shows."""


def configuration(seed: int) -> dict[str, Any]:
    """How a model may have been trained, and its steps be laid out."""
    rng = random.Random(seed)  # noqa: S311
    start = rng.uniform(1e-4, 2e-3)
    return {
        "num_train_timesteps": rng.choice([400, 1000]),
        "beta_start": start,
        "beta_end": rng.uniform(start + 1e-3, 0.02),
        "beta_schedule": rng.choice(["linear", "scaled_linear", "squaredcos_cap_v2"]),
        "prediction_type": rng.choice(["epsilon", "v_prediction"]),
        "timestep_spacing": rng.choice(["linspace", "leading", "trailing"]),
        "steps_offset": rng.choice([0, 1]),
        "clip_sample": False,
        "shift": rng.uniform(0.5, 3.0),
    }


def predicted(x: Tensor, timestep: Tensor) -> Tensor:
    """A model that is linear in nothing, and forgets nothing."""
    return torch.tanh(x + timestep / 1000) * 0.7 + 0.1 * x.roll(1, -1)


def by_diffusers(scheduler: Any, steps: int, seed: int) -> Tensor:
    """What a pipeline does with a scheduler."""
    generator = torch.Generator().manual_seed(seed)
    scheduler.set_timesteps(steps)
    x = torch.randn(SHAPE, generator=generator) * getattr(scheduler, "init_noise_sigma", 1.0)
    for timestep in scheduler.timesteps:
        given = (
            scheduler.scale_model_input(x, timestep)
            if hasattr(scheduler, "scale_model_input")
            else x
        )
        options = (
            {"generator": generator} if "generator" in scheduler.step.__code__.co_varnames else {}
        )
        x = scheduler.step(predicted(given, timestep), timestep, x, return_dict=False, **options)[0]
    return x


def by_table(table: Table, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(SHAPE, generator=generator) * table.begin.noise
    past: list[tuple[Tensor, Tensor]] = []
    for at, timestep in enumerate(table.timesteps):
        past.insert(0, (x, predicted(x * table.scales[at], torch.tensor(timestep))))
        x = torch.zeros(SHAPE)
        for (old, said), (a, b) in zip(past, table.factors[at], strict=False):
            x = x + a * old + b * said
        if table.draws[at]:
            x = x + table.noises[at] * torch.randn(SHAPE, generator=generator)
    return x


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", Scheduler)
def test_a_table_does_what_its_scheduler_does(name: Scheduler, seed: int) -> None:
    config = configuration(seed)
    steps = random.Random(seed).randint(3, 40)  # noqa: S311
    tables = Tables(scheduler_of(name, config))
    try:
        expected = by_diffusers(scheduler_of(name, config), steps, seed)
    except IndexError:  # diffusers' own, where two steps fall on one timestep
        with pytest.raises(InvalidRequest):
            tables.table(steps)
        return
    found = by_table(tables.table(steps), seed)
    error = (found - expected).abs().max() / expected.abs().max()
    assert error < (STEEP_ERROR if config["beta_schedule"] == STEEP else RELATIVE_ERROR)


def test_a_scheduler_that_clips_is_found_out() -> None:
    config = {"thresholding": True}
    assert is_affine(scheduler_of(Scheduler.DDIM, {}), 8)
    assert not is_affine(scheduler_of(Scheduler.DDIM, config), 8)


def test_steps_that_a_scheduler_cannot_do_are_refused() -> None:
    tables = Tables(scheduler_of(Scheduler.LCM, {}))
    with pytest.raises(InvalidRequest) as refusal:
        tables.table(60)
    assert refusal.value.param == "num_inference_steps"


def test_only_the_steps_that_are_run_count() -> None:
    tables = Tables(scheduler_of(Scheduler.DPMPP_2M, {}))
    whole, half = tables.table(10), tables.table(10, 0.5, picture=True)
    assert half.timesteps == whole.timesteps[5:]
    assert half.begin.source > 0.0


@pytest.mark.parametrize("name", Scheduler)
def test_one_step_is_run_at_least(name: Scheduler) -> None:
    tables = Tables(scheduler_of(name, {}))
    for steps, strength in ((10, 0.05), (1, 0.8), (10, 1e-9)):
        whole, part = tables.table(steps), tables.table(steps, strength, picture=True)
        assert part.timesteps == whole.timesteps[-1:]


def test_a_part_of_the_steps_is_rounded_as_the_pipeline_does() -> None:
    scheduler = scheduler_of(Scheduler.FLOW_MATCH_EULER, {})
    down, up = Tables(scheduler), Tables(scheduler, Layout(rounds_up=True))
    assert [down.table(8, part).steps for part in (0.01, 0.6, 0.75, 1.0)] == [1, 4, 6, 8]
    assert [up.table(8, part).steps for part in (0.01, 0.6, 0.75, 1.0)] == [1, 5, 6, 8]
