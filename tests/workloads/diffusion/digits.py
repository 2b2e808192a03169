"""The demo bundle's engine, and diffusers' own pipelines over the same weights."""

from __future__ import annotations

import io
import json
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderTiny, StableDiffusionPipeline, UNet2DConditionModel
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import CLIPTokenizer

from headpond.bundle.store import Bundle, open_bundle
from headpond.engine import EngineSettings, Progress, Quantum
from headpond.errors import HeadpondError
from headpond_workloads.diffusion.engine.components import (
    AUTOENCODERS,
    DENOISERS,
    TextEncoder,
    load_encoder,
    load_network,
)
from headpond_workloads.diffusion.engine.engine import DiffusionEngine
from headpond_workloads.diffusion.engine.load import load
from headpond_workloads.diffusion.engine.options import inputs_of, options_of
from headpond_workloads.diffusion.engine.schedulers import scheduler_of
from headpond_workloads.diffusion.engine.slot import Output, Slot
from headpond_workloads.diffusion.items import Painted, Picture, Scheduler

Pixels = NDArray[np.float32]
BUNDLE = Path(__file__).parents[3] / "bundles/tinysd-digits"
SETTINGS = EngineSettings(state_bytes=2**28, threads=1)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Networks of a bundle, loaded once more for diffusers' pipelines."""

    tokenizer: CLIPTokenizer
    text_encoder: TextEncoder
    unet: UNet2DConditionModel
    vae: AutoencoderTiny
    config: dict[str, Any]


@cache
def digits() -> Bundle:
    return open_bundle(BUNDLE)


@cache
def parts() -> Parts:
    bundle = digits()
    options, (reader,) = options_of(bundle.manifest), inputs_of(bundle.manifest).readers
    model = json.loads(bundle.files["tokenizer"].read_text())["model"]
    merges: Any = [tuple(merge) for merge in model["merges"]]
    return Parts(
        tokenizer=CLIPTokenizer(
            vocab=model["vocab"], merges=merges, model_max_length=reader.tokens
        ),
        text_encoder=load_encoder(bundle, reader.encoder, reader.config, torch.float32, ""),
        unet=load_network(bundle, options.denoiser, DENOISERS, torch.float32, ""),
        vae=load_network(bundle, options.autoencoder, AUTOENCODERS, torch.float32, ""),
        config=json.loads(bundle.files["scheduler"].read_text()),
    )


def pipeline(kind: Any, scheduler: Scheduler, config: dict[str, Any] | None = None) -> Any:
    """One of diffusers' pipelines for Stable Diffusion."""
    own = parts()
    made = kind(
        vae=own.vae,
        text_encoder=own.text_encoder,
        tokenizer=own.tokenizer,
        unet=own.unet,
        scheduler=scheduler_of(scheduler, config or own.config),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    made.set_progress_bar_config(disable=True)
    return made


def alone(picture: Picture, kind: Any = StableDiffusionPipeline, **given: Any) -> Pixels:
    """The pixels, 0 to 1, that diffusers' pipeline gives for a picture, run alone."""
    made = pipeline(kind, Scheduler(picture.scheduler or Scheduler.DPMPP_2M))
    result = made(
        picture.prompt,
        negative_prompt=picture.negative_prompt,
        num_inference_steps=picture.steps or 10,
        guidance_scale=4.0 if picture.guidance is None else picture.guidance,
        generator=torch.Generator().manual_seed(picture.seed),
        output_type="np",
        **(given or {"height": picture.height or 32, "width": picture.width or 32}),
    )
    pixels: Pixels = result.images[0]
    return pixels


@cache
def engine() -> DiffusionEngine:
    return load(digits(), SETTINGS)


@dataclass(eq=False)
class Painting:
    """What became of a picture so far."""

    slot: Slot
    key: tuple[Hashable, ...]
    outputs: list[Output] = field(default_factory=list)
    units: int = 0
    error: HeadpondError | None = None
    over: bool = False
    latents: Tensor | None = None

    @property
    def file(self) -> bytes:
        (last,) = [each for each in self.outputs if isinstance(each, Painted)]
        return last.content

    @property
    def pixels(self) -> Pixels:
        """The picture of its file, 0 to 1."""
        return np.asarray(Image.open(io.BytesIO(self.file)), np.float32) / np.float32(255)

    def take(self, progress: Progress[Output]) -> None:
        if self.slot.latents is not None:
            self.latents = self.slot.latents  # before the last step; then they are pixels
        self.outputs += progress.outputs
        self.units += progress.units
        self.error = progress.error
        self.over = progress.finished is not None or progress.error is not None


class Company:
    """Pictures that are painted together; each may join and leave between steps."""

    def __init__(self, painter: DiffusionEngine) -> None:
        self.painter = painter
        self.running: list[Painting] = []

    def join(self, picture: Picture) -> Painting:
        plan = self.painter.plan(picture, "")
        painting = Painting(self.painter.start(plan), plan.key)
        self.running.append(painting)
        return painting

    def leave(self, painting: Painting) -> None:
        self.running.remove(painting)
        self.painter.release(painting.slot)

    def step(self) -> None:
        for key in dict.fromkeys(painting.key for painting in self.running):
            group = [painting for painting in self.running if painting.key == key]
            quanta = [Quantum(slot=painting.slot, units=1) for painting in group]
            for painting, progress in zip(group, self.painter.step(quanta), strict=True):
                painting.take(progress)
        for painting in [each for each in self.running if each.over]:
            self.leave(painting)

    def run(self) -> None:
        while self.running:
            self.step()


def paint(painter: DiffusionEngine, *pictures: Picture, apart: int = 0) -> list[Painting]:
    """Paint pictures, of which each joins some steps after the one before."""
    company = Company(painter)
    paintings = []
    for picture in pictures:
        paintings.append(company.join(picture))
        for _ in range(apart):
            company.step()
    company.run()
    return paintings
