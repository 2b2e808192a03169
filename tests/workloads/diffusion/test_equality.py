"""Pictures beside those of diffusers' pipelines, run alone with the same seeds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline
from PIL import Image

from headpond_workloads.diffusion.items import Picture, Scheduler, Source
from workloads.diffusion.digits import Pixels, alone, engine, paint
from workloads.images.pictures import saved, scene

SCHEDULERS = (
    Scheduler.DDIM,
    Scheduler.DDPM,
    Scheduler.PNDM,
    Scheduler.EULER,
    Scheduler.EULER_KARRAS,
    Scheduler.EULER_ANCESTRAL,
    Scheduler.DPMPP_2M,
    Scheduler.DPMPP_2M_KARRAS,
)
COLOURS, DIGITS = ("red", "green", "blue", "yellow"), ("one", "two", "three", "seven", "nine")
ROUNDED = 0.5 / 255
ERROR = 1e-4
"""Of a pixel between 0 and 1. 2e-5 is the most that was seen."""


def mixed(at: int) -> Picture:
    """One of many pictures that differ in everything."""
    return Picture(
        prompt=f"a {COLOURS[at % 4]} {DIGITS[at % 5]}",
        negative_prompt=None if at % 3 else f"a white {DIGITS[at % 5]}",
        steps=4 + at % 7,
        guidance=(1.0, 4.0, 7.5)[at % 3],
        scheduler=SCHEDULERS[at % len(SCHEDULERS)],
        seed=100 + at,
    )


def near(painted: Pixels, expected: Pixels) -> bool:
    return bool(np.abs(painted - expected).max() <= ROUNDED + ERROR)


def test_pictures_of_all_schedulers_together_equal_the_pipelines() -> None:
    pictures = [mixed(at) for at in range(24)]
    for picture, painting in zip(pictures, paint(engine(), *pictures, apart=1), strict=True):
        assert near(painting.pixels, alone(picture)), picture


@pytest.mark.parametrize("guidance", [1.0, 4.0])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_picture_is_the_same_to_the_bit_alone_and_in_company(
    scheduler: Scheduler, guidance: float
) -> None:
    picture = Picture(prompt="a red seven", seed=7, guidance=guidance, scheduler=scheduler)
    (by_itself,) = paint(engine(), picture)
    for others in (1, 6, 13):
        company = paint(engine(), *[mixed(at) for at in range(others)], picture, apart=1)
        assert company[-1].latents is not None
        assert by_itself.latents is not None
        assert torch.equal(company[-1].latents, by_itself.latents)
        assert company[-1].file == by_itself.file


def test_another_size_equals_the_pipeline() -> None:
    picture = Picture(prompt="a blue two", seed=3, width=48, height=32, steps=5)
    (painting,) = paint(engine(), picture)
    assert painting.pixels.shape == (32, 48, 3)
    assert near(painting.pixels, alone(picture))


SOURCE = scene(40, 30)
"""A picture of another size than is painted."""


def source(picture: Picture, strength: float, mask: Image.Image | None = None) -> Picture:
    hole = None
    if mask is not None:
        shade = Image.new("RGBA", SOURCE.size)
        shade.putalpha(mask.point(lambda shown: 255 - shown))
        hole = saved(shade, "PNG")
    given = Source(image=saved(SOURCE, "PNG"), mask=hole, strength=strength)
    return Picture(
        prompt=picture.prompt,
        seed=picture.seed,
        steps=picture.steps,
        guidance=picture.guidance,
        scheduler=picture.scheduler,
        source=given,
    )


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_picture_from_a_picture_equals_the_pipeline(scheduler: Scheduler) -> None:
    given = SOURCE.convert("RGB").resize((32, 32), Image.Resampling.LANCZOS)
    plain = Picture(prompt="a green one", seed=5, steps=8, guidance=3.0, scheduler=scheduler)
    for strength in (0.5, 1.0):
        (_, painting) = paint(engine(), mixed(1), source(plain, strength), apart=2)
        kind = StableDiffusionImg2ImgPipeline
        expected = alone(plain, kind, image=given, strength=strength)
        assert near(painting.pixels, expected)


def test_the_least_strength_equals_the_pipeline_where_that_runs() -> None:
    given = SOURCE.convert("RGB").resize((32, 32), Image.Resampling.LANCZOS)
    kind = StableDiffusionImg2ImgPipeline
    for scheduler, strength in ((Scheduler.PNDM, 0.05), (Scheduler.EULER, 0.1)):
        plain = Picture(prompt="a green one", seed=5, steps=10, scheduler=scheduler)
        (painting,) = paint(engine(), source(plain, strength))
        assert painting.units == 1
        assert near(painting.pixels, alone(plain, kind, image=given, strength=strength))


def test_an_inpainted_picture_equals_the_pipeline() -> None:
    mask = Image.new("L", SOURCE.size)
    mask.paste(255, (10, 5, 30, 25))
    for at, strength in enumerate((0.6, 1.0, 0.8)):
        for scheduler in (Scheduler.DDIM, Scheduler.EULER_ANCESTRAL, Scheduler.DPMPP_2M):
            plain = Picture(
                prompt="a red three",
                seed=at,
                steps=6,
                guidance=(1.0, 4.0)[at % 2],
                scheduler=scheduler,
            )
            painting = paint(engine(), mixed(2), source(plain, strength, mask), apart=1)[-1]
            expected = alone(
                plain,
                StableDiffusionInpaintPipeline,
                image=SOURCE,
                mask_image=mask,
                strength=strength,
            )
            assert near(painting.pixels, expected)


def test_two_threads_keep_rows_the_same() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        picture = mixed(1)
        (by_itself,) = paint(engine(), picture)
        together = paint(engine(), picture, *[mixed(at) for at in range(2, 9)])
        assert together[0].file == by_itself.file
    finally:
        torch.set_num_threads(threads)
