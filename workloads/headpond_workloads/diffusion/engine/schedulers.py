"""Schedulers of diffusers, by the names that callers know."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Protocol, cast

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
)

from headpond_workloads.diffusion.items import Scheduler

Config = Mapping[str, Any]
"""A scheduler's configuration, as diffusers writes it."""


class DiffusersScheduler(Protocol):
    """What is used of a scheduler of diffusers."""

    timesteps: torch.Tensor
    order: int

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
