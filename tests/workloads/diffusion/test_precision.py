"""The demo bundle in bfloat16, beside itself in float32 and beside diffusers in bfloat16."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline
from PIL import Image

from headpond_workloads.diffusion.engine.engine import DiffusionEngine
from headpond_workloads.diffusion.engine.load import load
from headpond_workloads.diffusion.items import Picture, Preview, Scheduler
from workloads.diffusion.digits import SETTINGS, digits, engine, paint, pipeline

PICTURES = tuple(
    Picture(prompt=prompt, seed=seed, partials=2, scheduler=scheduler)
    for seed, (prompt, scheduler) in enumerate(
        [
            ("a red seven", Scheduler.DPMPP_2M),
            ("a blue two", Scheduler.EULER),
            ("a green one", Scheduler.DDIM),
            ("a white nine", Scheduler.EULER_ANCESTRAL),
        ]
    )
)
DRIFT = 0.01
"""Of a pixel between 0 and 1, on average. 0.003 is the most that was seen."""


def in_half(autoencoder: str | None) -> DiffusionEngine:
    """The demo bundle's engine in bfloat16; of the autoencoder's dtype, too."""
    bundle = digits()
    execution = bundle.manifest.execution
    options: dict[str, Any] = dict(execution.options)
    if autoencoder is not None:
        options["autoencoder"] = {**options["autoencoder"], "dtype": autoencoder}
    changed = execution.model_copy(update={"dtype": "bfloat16", "options": options})
    manifest = bundle.manifest.model_copy(update={"execution": changed})
    return load(replace(bundle, manifest=manifest), SETTINGS)


@pytest.mark.parametrize("autoencoder", [None, "float32"])
def test_bfloat16_paints_what_float32_paints(autoencoder: str | None) -> None:
    ours = paint(in_half(autoencoder), *PICTURES, apart=1)
    for painting, whole in zip(ours, paint(engine(), *PICTURES, apart=1), strict=True):
        drift = np.abs(painting.pixels - whole.pixels).mean()
        assert drift <= DRIFT
        previews = [each for each in painting.outputs if isinstance(each, Preview)]
        assert [Image.open(io.BytesIO(each.content)).size for each in previews] == [(32, 32)] * 2


def test_the_autoencoder_computes_in_what_it_is_told_to() -> None:
    symbols = [in_half(dtype).symbols["weight_bytes"] for dtype in (None, "float32")]
    assert symbols[0] < symbols[1] < engine().symbols["weight_bytes"]


def test_bfloat16_is_near_the_pipeline_in_bfloat16() -> None:
    made = pipeline(StableDiffusionPipeline, Scheduler.DPMPP_2M)
    networks = (made.text_encoder, made.unet, made.vae)
    for network in networks:
        torch.nn.Module.to(network, torch.bfloat16)
    try:
        expected = made(
            "a red seven",
            num_inference_steps=10,
            guidance_scale=4.0,
            generator=torch.Generator().manual_seed(0),
            output_type="np",
        ).images[0]
    finally:
        for network in networks:
            torch.nn.Module.to(network, torch.float32)
    (painting,) = paint(in_half(None), PICTURES[0])
    assert np.abs(painting.pixels - expected).mean() <= DRIFT
