"""The engine of the demo bundle: what it gives, and what it does when something is wrong."""

from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from headpond.admission.limits import Limits
from headpond.bundle.fixtures import check_fixtures
from headpond.errors import (
    ContextLengthExceeded,
    EngineFailed,
    HeadpondError,
    InvalidRequest,
    UnsupportedParameter,
)
from headpond.units import Work
from headpond_workloads.diffusion.engine import solver
from headpond_workloads.diffusion.engine.engine import DiffusionEngine
from headpond_workloads.diffusion.engine.preview import Linear
from headpond_workloads.diffusion.engine.slot import Pixels
from headpond_workloads.diffusion.items import (
    Encoding,
    Medium,
    Painted,
    Picture,
    Preview,
    Source,
    Started,
    Stepped,
)
from headpond_workloads.diffusion.record import record
from workloads.diffusion.digits import Company, digits, engine, paint
from workloads.images.pictures import saved, scene

SEVEN = Picture(prompt="a red seven", seed=7)


def test_the_bundle_keeps_its_contract() -> None:
    check_fixtures(record, digits().manifest, engine().observe)


def test_a_picture_tells_how_it_gets_on() -> None:
    (painting,) = paint(engine(), Picture(prompt="a red seven", seed=7, steps=4, partials=2))
    started, *told, painted = painting.outputs
    assert started == Started(steps=4, width=32, height=32)
    steps = [each for each in told if isinstance(each, Stepped)]
    assert steps == [Stepped(step=at, steps=4) for at in (1, 2, 3, 4)]
    previews = [each for each in told if isinstance(each, Preview)]
    assert [preview.index for preview in previews] == [0, 1]
    assert all(Image.open(io.BytesIO(each.content)).size == (32, 32) for each in previews)
    assert isinstance(painted, Painted)
    assert (painted.text_tokens, painted.negative_tokens) == (5, 0)
    assert (painted.seed, painted.steps, painted.scheduler) == (7, 4, "dpmpp_2m")
    assert painting.units == 4


def test_the_last_preview_is_nearly_the_picture() -> None:
    (painting,) = paint(engine(), Picture(prompt="a red seven", seed=7, steps=12, partials=3))
    last = [each for each in painting.outputs if isinstance(each, Preview)][-1]
    shown = np.asarray(Image.open(io.BytesIO(last.content)), np.float32) / 255
    assert np.abs(shown - painting.pixels).mean() < 0.05


@pytest.mark.parametrize("medium", Medium)
def test_files_are_of_the_format_that_was_asked_for(medium: Medium) -> None:
    encoding = Encoding(medium=medium, compression=70)
    (painting,) = paint(
        engine(), Picture(prompt="a red seven", seed=7, steps=2, partials=1, encoding=encoding)
    )
    contents = [each.content for each in painting.outputs if isinstance(each, Preview | Painted)]
    assert [Image.open(io.BytesIO(each)).format for each in contents] == [medium.value.upper()] * 2


def test_a_large_picture_is_written_elsewhere_and_still_comes() -> None:
    small, large = paint(
        engine(),
        Picture(prompt="a red seven", seed=7, steps=2),
        Picture(prompt="a red seven", seed=7, steps=2, width=128, height=128),
    )
    assert small.file
    assert large.pixels.shape == (128, 128, 3)


def test_the_linear_preview_adds_up_channels() -> None:
    factors = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [-1.0, -1.0, -1.0]])
    latents = torch.tensor([[[1.0]], [[0.5]]])
    assert Linear(factors, 4)(latents).tolist() == [[[255, 128, 0]] * 4] * 4


@pytest.mark.parametrize(
    ("picture", "param", "error"),
    [
        (Picture(prompt="a", seed=0, width=30), "size", InvalidRequest),
        (Picture(prompt="a", seed=0, width=1024, height=1024), "size", InvalidRequest),
        (Picture(prompt="a", seed=0, steps=101), "num_inference_steps", InvalidRequest),
        (Picture(prompt="a", seed=0, scheduler="lcm"), "scheduler", UnsupportedParameter),
        (Picture(prompt="a", seed=0, scheduler="magic"), "scheduler", UnsupportedParameter),
        (Picture(prompt="x " * 40, seed=0), "prompt", ContextLengthExceeded),
        (
            Picture(prompt="a", negative_prompt="x " * 40, seed=0),
            "negative_prompt",
            ContextLengthExceeded,
        ),
        (
            Picture(prompt="a", seed=0, source=Source(image=b"?", mask=None, strength=0.5)),
            "image",
            InvalidRequest,
        ),
        (
            Picture(
                prompt="a",
                seed=0,
                source=Source(
                    image=saved(scene(32, 32), "PNG"),
                    mask=saved(Image.new("RGBA", (16, 16)), "PNG"),
                    strength=0.5,
                ),
            ),
            "mask",
            InvalidRequest,
        ),
        *(
            (
                Picture(
                    prompt="a",
                    seed=0,
                    source=Source(
                        image=saved(scene(32, 32), "PNG"),
                        mask=saved(Image.new("RGBA", (32, 32), (0, 0, 0, alpha)), "PNG"),
                        strength=0.5,
                    ),
                ),
                "mask",
                InvalidRequest,
            )
            for alpha in (255, 128)
        ),
    ],
)
def test_what_the_model_cannot_paint_is_refused(
    picture: Picture, param: str, error: type[HeadpondError]
) -> None:
    with pytest.raises(error) as refusal:
        engine().plan(picture, "")
    assert refusal.value.param == param


def test_pictures_of_one_call_share_what_they_begin_from() -> None:
    image, hole = saved(scene(32, 32), "PNG"), saved(Image.new("RGBA", (32, 32)), "PNG")

    def begun(mask: bytes | None, *, size: int = 32, strength: float = 0.5) -> Pixels | None:
        source = Source(image=bytes(bytearray(image)), mask=mask, strength=strength)
        picture = Picture(prompt="a", seed=0, width=size, height=size, source=source)
        return engine().plan(picture, "").prepared.source

    first = begun(None)
    assert first is not None
    assert begun(None) is first
    assert begun(None, strength=0.7) is first
    assert begun(None, size=64) is not first
    assert begun(hole) is not first
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None


def test_pndm_tells_the_steps_that_were_asked_for() -> None:
    (painting,) = paint(engine(), Picture(prompt="a red seven", seed=7, steps=10, scheduler="pndm"))
    painted = painting.outputs[-1]
    assert isinstance(painted, Painted)
    assert (painted.steps, painting.units) == (10, 11)


def test_limits_are_over_the_steps_that_are_asked_for() -> None:
    manifest = digits().manifest
    most = Picture(prompt="a red seven", seed=7, steps=100, scheduler="pndm")
    limits = Limits(record, engine().symbols, manifest.limits)
    limits.check_shape(engine().plan(most, "").shape)


@pytest.mark.parametrize("scheduler", ["pndm", "ddim", "euler", "dpmpp_2m"])
@pytest.mark.parametrize(("steps", "strength"), [(10, 0.05), (1, 0.8)])
def test_an_edit_runs_one_step_at_least(scheduler: str, steps: int, strength: float) -> None:
    source = Source(image=saved(scene(32, 32), "PNG"), mask=None, strength=strength)
    picture = Picture(prompt="a", seed=0, steps=steps, scheduler=scheduler, source=source)
    (painting,) = paint(engine(), picture)
    painted = painting.outputs[-1]
    assert isinstance(painted, Painted)
    assert (painting.units, painted.steps, painted.strength) == (1, steps, strength)


def test_work_counts_both_passes_and_only_steps_that_are_run() -> None:
    plain = engine().plan(Picture(prompt="a", seed=0, steps=10, guidance=1.0), "")
    assert plain.prepared.work == Work(pixel_steps=32 * 32 * 10)
    source = Source(image=saved(scene(32, 32), "PNG"), mask=None, strength=0.5)
    half = engine().plan(Picture(prompt="a", seed=0, steps=10, source=source), "")
    assert half.prepared.work == Work(pixel_steps=32 * 32 * 5 * 2)


def test_more_pictures_than_pay_together_take_turns() -> None:
    company = Company(engine())
    paintings = [
        company.join(Picture(prompt="a red seven", seed=seed, steps=6)) for seed in range(20)
    ]
    for _ in range(5):
        company.step()
        steps = [painting.units for painting in paintings]
        assert max(steps) - min(steps) <= 1
    company.run()
    assert all(painting.units == 6 and painting.file for painting in paintings)


def test_cancelled_neighbours_change_nothing() -> None:
    painter = engine()
    (alone,) = paint(painter, SEVEN)
    company = Company(painter)
    painting = company.join(SEVEN)
    cancelled = 0
    while not painting.over:
        others = [company.join(Picture(prompt="a blue one", seed=seed)) for seed in range(50)]
        company.step()
        for other in others:
            company.leave(other)
            cancelled += 1
    assert cancelled == 500
    assert painting.file == alone.file
    (good,) = paint(painter, SEVEN)
    assert good.file == alone.file


def test_n_pictures_are_those_of_the_seeds_that_follow() -> None:
    three = [Picture(prompt="a red seven", seed=7 + at) for at in range(3)]
    together = [painting.file for painting in paint(engine(), *three)]
    assert together == [paint(engine(), each)[0].file for each in three]
    assert len(set(together)) == 3


@contextmanager
def scarce(painter: DiffusionEngine, rows: int) -> Iterator[None]:
    """Let forwards of more rows run out of memory."""
    denoiser = painter._denoiser
    forward = denoiser._forward

    def small(names: tuple[str, ...], inputs: list[Tensor]) -> object:
        if len(inputs[0]) > rows:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(names, inputs)

    denoiser._forward = small  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        denoiser._forward = forward  # type: ignore[method-assign]


def test_where_memory_lacks_fewer_are_stepped_at_once() -> None:
    pictures = [Picture(prompt="a red seven", seed=seed, steps=3) for seed in range(8)]
    plenty = [painting.file for painting in paint(engine(), *pictures)]
    with scarce(engine(), 4):
        assert [painting.file for painting in paint(engine(), *pictures)] == plenty


def test_a_picture_that_takes_too_much_memory_fails_alone() -> None:
    large = Picture(prompt="a red seven", seed=1, steps=3)  # guided: two rows
    with scarce(engine(), 2):
        fine, failed = paint(
            engine(), Picture(prompt="a red seven", seed=7, steps=3, guidance=1.0), large
        )
        assert fine.file
    with scarce(engine(), 1):
        (failed,) = paint(engine(), large)
    assert isinstance(failed.error, EngineFailed)
    assert paint(engine(), large)[0].file


def test_latents_that_are_not_finite_fail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    advanced = solver.advanced

    def spoilt(slots: list[object], latents: Tensor, predictions: Tensor) -> Tensor:
        after = advanced(slots, latents, predictions)  # type: ignore[arg-type]
        if len(slots) > 1:
            after[0, 0, 0, 0] = torch.nan
        return after

    (expected,) = paint(engine(), Picture(prompt="a red seven", seed=8))
    monkeypatch.setattr(solver, "advanced", spoilt)
    failed, fine = paint(engine(), SEVEN, Picture(prompt="a red seven", seed=8))
    assert isinstance(failed.error, EngineFailed)
    assert fine.file == expected.file


def test_decoding_falls_back_to_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    autoencoder = engine()._autoencoder
    network, decode = autoencoder.network, autoencoder.network.decode
    large = Picture(prompt="a red seven", seed=7, steps=2, width=64, height=64)

    def scarce_decode(latents: Tensor, **given: object) -> object:
        if latents.shape[-1] > 8:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return decode(latents, **given)

    (plenty,) = paint(engine(), large)
    monkeypatch.setattr(network, "decode", scarce_decode)
    (tiled,) = paint(engine(), large)
    assert np.abs(tiled.pixels - plenty.pixels).mean() < 0.05
