"""A bundle's fixtures: what is to be painted, and samples of what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field
from torch import Tensor

from headpond.bundle.section import Section, read_section
from headpond.engine import Json
from headpond_workloads.diffusion.engine.autoencoder import Image
from headpond_workloads.diffusion.engine.slot import Slot
from headpond_workloads.diffusion.items import Picture, Scheduler

_SAMPLES = 32
_DIGITS = 4


class _Given(Section):
    prompt: Annotated[str, Field(min_length=1)]
    negative_prompt: str | None = None
    steps: Annotated[int, Field(ge=1)] | None = None
    guidance: Annotated[float, Field(ge=0.0)] | None = None
    scheduler: Scheduler | None = None
    seed: Annotated[int, Field(ge=0)]


def picture_of(given: Mapping[str, Json]) -> Picture:
    """Return the picture that a fixture asks for: `prompt`, `seed`, and what else it says.

    Raises:
        BundleError: They are not there, or of a wrong kind.
    """
    return Picture(**read_section(_Given, given, "fixtures.given").model_dump())


def observation(slot: Slot, latents: Tensor, image: Image) -> Mapping[str, Json]:
    """Return what the record's contracts compare: tokens, and evenly spread samples."""
    conditioning = next(iter(slot.conditions[0].values()))
    return {
        "tokens": [list(tokens) for tokens in slot.prepared.prompt.tokens],
        "conditioning": _samples(conditioning.float().cpu().numpy()),
        "latents": _samples(latents.float().cpu().numpy()),
        "pixels": _samples(image / 255),
    }


def _samples(values: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> list[Json]:
    flat = values.reshape(-1)
    places = np.linspace(0, flat.size - 1, min(_SAMPLES, flat.size)).astype(np.intp)
    return [round(float(value), _DIGITS) for value in flat[places]]
