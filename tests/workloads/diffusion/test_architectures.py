"""Other pipelines than the demo's, with tiny random models, beside diffusers' own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    FluxImg2ImgPipeline,
    FluxPipeline,
    StableDiffusion3Pipeline,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionInpaintPipeline,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
)
from PIL import Image

from headpond.errors import BundleError
from headpond_workloads.diffusion.engine.engine import DiffusionEngine
from headpond_workloads.diffusion.engine.load import load
from headpond_workloads.diffusion.engine.schedulers import scheduler_of
from headpond_workloads.diffusion.items import Picture, Scheduler, Source
from workloads.diffusion import random_models
from workloads.diffusion.digits import SETTINGS, Pixels, paint, parts
from workloads.diffusion.random_models import SCHEDULE
from workloads.images.pictures import saved, scene

ERROR = 0.5 / 255 + 1e-4
"""What rounding to bytes may change, and a little more."""

PICTURES = (
    Picture(prompt="a red seven", seed=1),
    Picture(prompt="a blue two", seed=2, steps=6, guidance=1.0),
    Picture(prompt="the digit 3", negative_prompt="a white nine", seed=3, steps=3, guidance=7.0),
    Picture(prompt="a green one", negative_prompt="", seed=4, width=24, height=16),
)


def shown(pipeline: Any, picture: Picture, **given: Any) -> Pixels:
    """The pixels, 0 to 1, that a pipeline of diffusers gives."""
    pipeline.set_progress_bar_config(disable=True)
    images = pipeline(
        picture.prompt,
        negative_prompt=picture.negative_prompt,
        num_inference_steps=picture.steps or 4,
        guidance_scale=4.0 if picture.guidance is None else picture.guidance,
        generator=torch.Generator().manual_seed(picture.seed),
        output_type="np",
        **given,
    ).images
    pixels: Pixels = images[0]
    return pixels


def compare(
    engine: DiffusionEngine, pipeline: Any, pictures: Sequence[Picture] = PICTURES, **given: Any
) -> None:
    """Paint pictures together, and each by the pipeline alone."""
    for picture, painting in zip(pictures, paint(engine, *pictures, apart=1), strict=True):
        sides = {"width": picture.width or 16, "height": picture.height or 16}
        expected = shown(pipeline, picture, **sides, **given)
        assert np.abs(painting.pixels - expected).max() <= ERROR, picture


def stable_diffusion(kind: Any, networks: dict[str, Any], scheduler: Scheduler) -> Any:
    return kind(
        **networks,
        tokenizer=parts().tokenizer,
        scheduler=scheduler_of(scheduler, SCHEDULE),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


@pytest.mark.parametrize("zeros", [True, False])
def test_sdxl_equals_its_pipeline(tmp_path: Path, zeros: bool) -> None:
    networks = random_models.sdxl()
    bundle = random_models.written(
        tmp_path,
        "StableDiffusionXLPipeline",
        networks,
        schedule=SCHEDULE,
        schedulers=["euler"],
        options={"zero_negative": zeros},
    )
    kind: Any = StableDiffusionXLPipeline
    pipeline = kind(
        **networks,
        tokenizer=parts().tokenizer,
        tokenizer_2=parts().tokenizer,
        scheduler=scheduler_of(Scheduler.EULER, SCHEDULE),
        force_zeros_for_empty_prompt=zeros,
        add_watermarker=False,
    )
    compare(load(bundle, SETTINGS), pipeline)


def sd3(folder: Path, schedule: dict[str, Any]) -> tuple[DiffusionEngine, Any]:
    """Return the engine of a random SD3, and diffusers' pipeline of the same networks."""
    networks = random_models.sd3()
    bundle = random_models.written(
        folder,
        "StableDiffusion3Pipeline",
        networks,
        schedule=schedule,
        schedulers=["flow_match_euler"],
        options={"empty_tokens": 8},
    )
    kind: Any = StableDiffusion3Pipeline
    pipeline = kind(
        **networks,
        tokenizer=parts().tokenizer,
        tokenizer_2=parts().tokenizer,
        text_encoder_3=None,
        tokenizer_3=None,
        scheduler=scheduler_of(Scheduler.FLOW_MATCH_EULER, schedule),
    )
    return load(bundle, SETTINGS), pipeline


def test_sd3_equals_its_pipeline(tmp_path: Path) -> None:
    engine, pipeline = sd3(tmp_path, {"shift": 3.0})
    compare(engine, pipeline, max_sequence_length=8)


SHIFTED = {
    "use_dynamic_shifting": True,
    "base_shift": 0.5,
    "max_shift": 1.15,
    "base_image_seq_len": 8,
    "max_image_seq_len": 32,
}
"""So that tiny pictures of two sizes are shifted by different amounts."""


def test_sd3_is_shifted_by_the_size_of_the_picture(tmp_path: Path) -> None:
    engine, pipeline = sd3(tmp_path, SHIFTED)
    wide = engine.plan(PICTURES[3], "").prepared.table
    square = engine.plan(PICTURES[0], "").prepared.table
    assert wide.timesteps != square.timesteps
    compare(engine, pipeline, max_sequence_length=8)


def flux_engine(
    folder: Path, networks: dict[str, Any], schedule: dict[str, Any]
) -> DiffusionEngine:
    bundle = random_models.written(
        folder,
        "FluxPipeline",
        networks,
        schedule=schedule,
        schedulers=["flow_match_euler"],
        options={},
    )
    return load(bundle, SETTINGS)


def flux_pipeline(kind: Any, networks: dict[str, Any], schedule: dict[str, Any]) -> Any:
    return kind(
        **networks,
        tokenizer=parts().tokenizer,
        tokenizer_2=parts().tokenizer,
        scheduler=scheduler_of(Scheduler.FLOW_MATCH_EULER, schedule),
    )


@pytest.mark.parametrize("schedule", [{"shift": 1.0}, SHIFTED])
def test_flux_equals_its_pipeline(tmp_path: Path, schedule: dict[str, Any]) -> None:
    networks = random_models.flux(guidance_embeds=True)
    engine = flux_engine(tmp_path, networks, schedule)
    assert engine.plan(PICTURES[0], "").shape["passes"] == 1
    pipeline = flux_pipeline(FluxPipeline, networks, schedule)
    compare(engine, pipeline, max_sequence_length=random_models.TOKENS)


def test_flux_that_is_not_told_its_guidance_is_guided(tmp_path: Path) -> None:
    networks = random_models.flux(guidance_embeds=False)
    engine = flux_engine(tmp_path, networks, {"shift": 3.0})
    pipeline = flux_pipeline(FluxPipeline, networks, {"shift": 3.0})
    picture = Picture(prompt="a red seven", negative_prompt="a one", seed=3, guidance=3.0)
    sides = {"width": 16, "height": 16, "max_sequence_length": random_models.TOKENS}
    expected = shown(pipeline, picture, true_cfg_scale=3.0, **sides)
    (painting,) = paint(engine, picture)
    assert np.abs(painting.pixels - expected).max() <= ERROR


@pytest.mark.parametrize("strength", [0.05, 0.5, 0.6])
def test_flux_changes_a_picture_as_its_pipeline_does(tmp_path: Path, strength: float) -> None:
    networks = random_models.flux(guidance_embeds=True)
    engine = flux_engine(tmp_path, networks, SHIFTED)
    pipeline = flux_pipeline(FluxImg2ImgPipeline, networks, SHIFTED)
    image = scene(16, 16)
    source = Source(image=saved(image, "PNG"), mask=None, strength=strength)
    picture = Picture(prompt="a red seven", seed=1, steps=5, source=source)
    sides = {"width": 16, "height": 16, "max_sequence_length": random_models.TOKENS}
    expected = shown(pipeline, picture, image=image, strength=strength, **sides)
    (painting,) = paint(engine, picture)
    assert np.abs(painting.pixels - expected).max() <= ERROR


def test_flux_is_the_same_to_the_bit_alone_and_in_company(tmp_path: Path) -> None:
    engine = flux_engine(tmp_path, random_models.flux(guidance_embeds=True), SHIFTED)
    (alone,) = paint(engine, PICTURES[1])
    together = paint(engine, PICTURES[0], PICTURES[2], PICTURES[1], PICTURES[3], apart=1)
    assert alone.latents is not None
    assert together[2].latents is not None
    assert torch.equal(alone.latents, together[2].latents)


def test_a_scheduler_that_the_pipeline_cannot_lay_out_is_refused(tmp_path: Path) -> None:
    bundle = random_models.written(
        tmp_path,
        "FluxPipeline",
        random_models.flux(guidance_embeds=True),
        schedule={},
        schedulers=["ddim"],
        options={},
    )
    with pytest.raises(BundleError, match="ddim"):
        load(bundle, SETTINGS)


NOT_LINEAR = [
    (Scheduler.DDIM, {"clip_sample": True}),
    (Scheduler.DDIM, {"thresholding": True, "dynamic_thresholding_ratio": 0.9}),
    (Scheduler.DDPM, {"clip_sample": True}),
    (Scheduler.DPMPP_2M, {"thresholding": True}),
    (Scheduler.UNIPC, {"thresholding": True}),
    (Scheduler.UNIPC, {}),
]
"""But for the last: it has the longest memory of those that a table does for."""


def sdxl_engine(folder: Path, networks: dict[str, Any], schedule: dict[str, Any]) -> Any:
    return load(
        random_models.written(
            folder,
            "StableDiffusionXLPipeline",
            networks,
            schedule=schedule,
            schedulers=[name.value for name in dict.fromkeys(name for name, _ in NOT_LINEAR)],
            options={"zero_negative": True},
        ),
        SETTINGS,
    )


@pytest.mark.parametrize(("name", "clipped"), NOT_LINEAR)
def test_schedulers_that_clip_equal_the_pipeline(
    tmp_path: Path, name: Scheduler, clipped: dict[str, Any]
) -> None:
    networks, schedule = random_models.sdxl(), {**SCHEDULE, **clipped}
    engine = sdxl_engine(tmp_path, networks, schedule)
    kind: Any = StableDiffusionXLPipeline
    pipeline = kind(
        **networks,
        tokenizer=parts().tokenizer,
        tokenizer_2=parts().tokenizer,
        scheduler=scheduler_of(name, schedule, rewritten=False),
        force_zeros_for_empty_prompt=True,
        add_watermarker=False,
    )
    pictures = [replace(picture, scheduler=name, steps=5) for picture in PICTURES]
    assert (engine.plan(pictures[0], "").prepared.table.solo is None) == (not clipped)
    compare(engine, pipeline, pictures)


def test_who_clips_is_the_same_to_the_bit_beside_who_does_not(tmp_path: Path) -> None:
    schedule = {**SCHEDULE, "clip_sample": True}
    engine = sdxl_engine(tmp_path, random_models.sdxl(), schedule)
    names = (Scheduler.DDIM, Scheduler.DPMPP_2M, Scheduler.DDPM, Scheduler.UNIPC)
    pictures = [replace(PICTURES[1], scheduler=name, seed=at) for at, name in enumerate(names)]
    together = paint(engine, *pictures, apart=1)
    for picture, painting in zip(pictures, together, strict=True):
        (alone,) = paint(engine, picture)
        assert alone.file == painting.file


def test_a_model_that_is_told_its_guidance_equals_its_pipeline(tmp_path: Path) -> None:
    networks = random_models.sd(time_cond_proj_dim=32)
    bundle = random_models.written(
        tmp_path,
        "StableDiffusionPipeline",
        networks,
        schedule=SCHEDULE,
        schedulers=["lcm"],
        options={},
    )
    engine = load(bundle, SETTINGS)
    assert engine.plan(PICTURES[2], "").shape["passes"] == 1
    compare(engine, stable_diffusion(StableDiffusionPipeline, networks, Scheduler.LCM))


@pytest.mark.parametrize("masked", [False, True])
def test_an_autoencoder_that_draws_noise_equals_the_pipelines(
    tmp_path: Path,
    masked: bool,
) -> None:
    networks = random_models.sd()
    bundle = random_models.written(
        tmp_path,
        "StableDiffusionPipeline",
        networks,
        schedule=SCHEDULE,
        schedulers=["euler_ancestral"],
        options={},
    )
    image, mask = scene(16, 16), Image.new("L", (16, 16))
    mask.paste(255, (4, 4, 12, 12))
    shade = Image.new("RGBA", (16, 16))
    shade.putalpha(mask.point(lambda white: 255 - white))
    hole = saved(shade, "PNG") if masked else None
    kind = StableDiffusionInpaintPipeline if masked else StableDiffusionImg2ImgPipeline
    given = {"mask_image": mask, "width": 16, "height": 16} if masked else {}
    picture = Picture(
        prompt="a red seven",
        seed=1,
        steps=6,
        source=Source(image=saved(image, "PNG"), mask=hole, strength=0.6),
    )
    pipeline = stable_diffusion(kind, networks, Scheduler.EULER_ANCESTRAL)
    expected = shown(pipeline, picture, image=image, strength=0.6, **given)
    (painting,) = paint(load(bundle, SETTINGS), picture)
    assert np.abs(painting.pixels - expected).max() <= ERROR


def test_networks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    networks = random_models.sd() | {"vae": random_models.autoencoder(8)}
    bundle = random_models.written(
        tmp_path,
        "StableDiffusionPipeline",
        networks,
        schedule=SCHEDULE,
        schedulers=["euler"],
        options={},
    )
    with pytest.raises(BundleError, match="channels"):
        load(bundle, SETTINGS)
