"""Schedulers of diffusers, by the names that callers know."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from diffusers import (
    DDIMScheduler,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    LCMScheduler,
    PNDMScheduler,
    UniPCMultistepScheduler,
)

from headpond_workloads.diffusion.items import Scheduler

Config = Mapping[str, Any]
"""A scheduler's configuration, as diffusers writes it."""


class DiffusersScheduler(Protocol):
    """What is used of a scheduler of diffusers."""

    timesteps: torch.Tensor
    order: int
    config: Config

    def set_timesteps(self, num_inference_steps: int, **given: object) -> None:
        """Lay out the steps."""


_DPMPP_2M = {"algorithm_type": "dpmsolver++", "solver_order": 2, "solver_type": "midpoint"}
_KARRAS = {"use_karras_sigmas": True}
_PLAIN = {"use_karras_sigmas": False}

_MADE_OF: Mapping[Scheduler, tuple[Any, Config]] = {
    Scheduler.DDIM: (DDIMScheduler, {}),
    Scheduler.DDPM: (DDPMScheduler, {}),
    Scheduler.PNDM: (PNDMScheduler, {"skip_prk_steps": True}),
    Scheduler.EULER: (EulerDiscreteScheduler, _PLAIN),
    Scheduler.EULER_KARRAS: (EulerDiscreteScheduler, _KARRAS),
    Scheduler.EULER_ANCESTRAL: (EulerAncestralDiscreteScheduler, {}),
    Scheduler.DPMPP_2M: (DPMSolverMultistepScheduler, {**_DPMPP_2M, **_PLAIN}),
    Scheduler.DPMPP_2M_KARRAS: (DPMSolverMultistepScheduler, {**_DPMPP_2M, **_KARRAS}),
    Scheduler.UNIPC: (UniPCMultistepScheduler, _PLAIN),
    Scheduler.LCM: (LCMScheduler, {}),
    Scheduler.FLOW_MATCH_EULER: (FlowMatchEulerDiscreteScheduler, {}),
}

_OF_THE_PIPELINE: Config = {"clip_sample": False, "steps_offset": 1}
"""What Stable Diffusion's pipelines set in the configuration of any scheduler that has it."""


def scheduler_of(name: Scheduler, config: Config, *, rewritten: bool = True) -> DiffusersScheduler:
    """Return a scheduler of diffusers for a model.

    Args:
        name: Which.
        config: The model's own: how it was trained. Noise is laid out accordingly.
        rewritten: Whether the model's pipeline changes it, as that of Stable Diffusion does.
    """
    made_of, overrides = _MADE_OF[name]
    known = inspect.signature(made_of.__init__).parameters
    wanted = {**config, **(_OF_THE_PIPELINE if rewritten else {}), **overrides}
    own = made_of.from_config({key: value for key, value in wanted.items() if key in known})
    return cast("DiffusersScheduler", own)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What a pipeline tells its scheduler besides the number of steps.

    Attributes:
        linear: Whether it lays out the noise itself, in even steps from 1, as Flux's does.
        rounds_up: Whether the part of the steps that an edit runs is rounded up, not down.
    """

    linear: bool = False
    rounds_up: bool = False

    def suits(self, scheduler: DiffusersScheduler) -> bool:
        """Say whether the scheduler can be told this."""
        return not self.linear or "sigmas" in inspect.signature(scheduler.set_timesteps).parameters

    def skipped(self, steps: int, strength: float) -> int:
        """Return how many of the steps an edit leaves out."""
        run = steps * strength
        return int(steps - run) if self.rounds_up else steps - int(run)

    def told(self, scheduler: DiffusersScheduler, steps: int, tokens: int) -> dict[str, object]:
        """Return what `set_timesteps` gets besides, for a picture of so many tokens."""
        told: dict[str, object] = {}
        if self.linear:
            told["sigmas"] = np.linspace(1.0, 1.0 / steps, steps)
        if is_shifted(scheduler):
            told["mu"] = _shift(scheduler.config, tokens)
        return told


def is_shifted(scheduler: DiffusersScheduler) -> bool:
    """Say whether the schedule depends on the size of the picture."""
    return bool(scheduler.config.get("use_dynamic_shifting"))


def _shift(config: Config, tokens: int) -> float:
    """Return how far noise is shifted: on the line between a small and a large picture."""
    least, most = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
    low, high = config.get("base_shift", 0.5), config.get("max_shift", 1.15)
    slope = (high - low) / (most - least)
    return float(tokens * slope + (low - slope * least))


def scaled_input(scheduler: Any, latents: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
    """Return the latents as the model sees them at a timestep."""
    if not hasattr(scheduler, "scale_model_input"):
        return latents
    scaled: torch.Tensor = scheduler.scale_model_input(latents, timestep)
    return scaled


def step_options(scheduler: Any, generator: torch.Generator) -> dict[str, object]:
    """Return what diffusers' pipelines pass to a step besides."""
    accepted = inspect.signature(scheduler.step).parameters
    given: dict[str, object] = {"eta": 0.0, "generator": generator}
    return {name: value for name, value in given.items() if name in accepted}
