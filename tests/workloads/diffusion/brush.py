"""A painter without a model: every picture is noise of its own, the same each time."""

from __future__ import annotations

import io
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from PIL import Image

from headpond.backend import LocalBackend
from headpond.bundle.manifest import Manifest
from headpond.engine import Json, Plan, Progress, Quantum
from headpond.errors import EngineFailed, InvalidRequest, UnsupportedParameter
from headpond.http.app import ASGIApp, build_app
from headpond.scheduling.loop import loop_for
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.telemetry.report import CallReport
from headpond_workloads.diffusion.items import (
    Medium,
    Painted,
    Picture,
    Preview,
    Source,
    Started,
    Stepped,
)
from headpond_workloads.diffusion.record import cost, record
from headpond_workloads.images.decoder import decode, decode_transparency

MODEL = "brush"
SIDE, MOST_SIDE, GRANULE, MOST_PIXELS = 32, 64, 8, 64 * 64
STEPS, GUIDANCE = 4, 3.0
SCHEDULERS = ("ddim", "euler")
POISON = "a hole"
"""What can't be painted."""

MANIFEST = Manifest.parse(
    {
        "name": "toy-brush",
        "version": "1.0.0",
        "workload": "diffusion",
        "summary": "Noise.",
        "licence": "Apache-2.0",
        "created": "2026-01-01T00:00:00Z",
        "artifacts": [{"name": "none", "source": "file:x", "bytes": 1, "sha256": "0" * 64}],
        "model": {
            "pixels": MOST_PIXELS,
            "latents": MOST_PIXELS // 64,
            "latent_channels": 4,
            "history": 1,
            "conditioning": 8,
            "activations": 8,
            "weight_bytes": 1,
            "workspace_bytes": 1,
        },
        "execution": {"architecture": "Noise", "dtype": "float32"},
    }
)


@dataclass(slots=True, eq=False)
class Canvas:
    """A picture that is being painted."""

    picture: Picture
    width: int
    height: int
    steps: int
    shape: Mapping[str, int]
    done: int = 0


@dataclass
class Painter:
    """Paints one step of every picture in a step.

    Attributes:
        rows: How many pictures each step had.
        open: Pictures that were started and not released.
        step_s: What a step takes.
        row_s: What each of its pictures adds to it.
    """

    rows: list[int] = field(default_factory=list)
    open: int = 0
    step_s: float = 0.0
    row_s: float = 0.0
    symbols: Mapping[str, int] = field(default_factory=lambda: MANIFEST.model)

    def plan(self, item: Picture, namespace: str) -> Plan[Picture]:
        width, height = item.width or SIDE, item.height or SIDE
        if width % GRANULE or height % GRANULE:
            raise InvalidRequest(f"sides are multiples of {GRANULE}", param="size")
        if item.scheduler is not None and item.scheduler not in SCHEDULERS:
            listed = ", ".join(SCHEDULERS)
            raise UnsupportedParameter(f"this model has {listed}", param="scheduler")
        steps = forwards = item.steps or STEPS
        if item.source is not None:
            forwards = max(round(steps * item.source.strength), 1)
            _read(item.source)
        shape = {
            "pixels": width * height,
            "latents": width * height // 64,
            "steps": steps,
            "forwards": forwards,
            "passes": 1 + (_guidance(item) > 1),
            "sources": 0 if item.source is None else 2,
        }
        return Plan(shape=shape, prepared=item, key=(width, height))

    def start(self, plan: Plan[Picture]) -> Canvas:
        self.open += 1
        width, height = plan.key
        assert isinstance(width, int)
        assert isinstance(height, int)
        return Canvas(plan.prepared, width, height, plan.shape["forwards"], plan.shape)

    def step(self, quanta: Sequence[Quantum[Canvas]]) -> list[Progress[object]]:
        self.rows.append(len(quanta))
        time.sleep(self.step_s + self.row_s * len(quanta))
        return [_step(each.slot) for each in quanta]

    def preempt(self, slot: Canvas) -> int:
        slot.done = 0
        return slot.steps

    def release(self, slot: Canvas) -> None:
        self.open -= 1

    def tallies(self) -> Mapping[str, int]:
        return {}

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        return given


def _step(canvas: Canvas) -> Progress[object]:
    picture = canvas.picture
    if picture.prompt == POISON:
        return Progress(error=EngineFailed("the latents are not finite"))
    outputs: list[object] = []
    if not canvas.done:
        outputs.append(Started(steps=canvas.steps, width=canvas.width, height=canvas.height))
    canvas.done += 1
    outputs.append(Stepped(step=canvas.done, steps=canvas.steps))
    medium = picture.encoding.medium
    if canvas.done <= picture.partials and canvas.done < canvas.steps:
        content = drawn(canvas, canvas.done)
        outputs.append(Preview(index=canvas.done - 1, content=content, medium=medium))
    if canvas.done < canvas.steps:
        return Progress(outputs=tuple(outputs), phase="denoise")
    outputs.append(
        Painted(
            content=drawn(canvas, canvas.done),
            medium=medium,
            width=canvas.width,
            height=canvas.height,
            seed=picture.seed,
            steps=canvas.shape["steps"],
            strength=None if picture.source is None else picture.source.strength,
            guidance=_guidance(picture),
            scheduler=picture.scheduler or SCHEDULERS[0],
            text_tokens=len(picture.prompt.split()),
            negative_tokens=len((picture.negative_prompt or "").split()),
        )
    )
    return Progress(outputs=tuple(outputs), phase="decode", finished=cost(canvas.shape))


def drawn(canvas: Canvas, step: int) -> bytes:
    """Draw noise that depends on all that was asked for."""
    asked = canvas.picture
    what = f"{asked.prompt}|{asked.negative_prompt}|{asked.seed}|{_guidance(asked)}|{step}"
    what += f"|{asked.scheduler or SCHEDULERS[0]}|{canvas.steps}|{asked.source}"
    rng = np.random.default_rng(int.from_bytes(sha256(what.encode()).digest()[:8]))
    pixels = rng.integers(0, 256, (canvas.height, canvas.width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(
        file, asked.encoding.medium.value, quality=asked.encoding.compression
    )
    return file.getvalue()


def _guidance(item: Picture) -> float:
    return GUIDANCE if item.guidance is None else item.guidance


def _read(source: Source) -> None:
    size = decode(source.image, max_pixels=MOST_PIXELS, needed=SIDE, param="image").image.size
    if source.mask is None:
        return
    mask = decode_transparency(source.mask, max_pixels=MOST_PIXELS, param="mask")
    if mask.size != size:
        raise InvalidRequest("the mask is not of the picture's size", param="mask")


def medium_of(content: bytes) -> Medium:
    """Return the format of a file."""
    with Image.open(io.BytesIO(content)) as image:
        return Medium((image.format or "").lower())


@asynccontextmanager
async def painting(
    painter: Painter, reports: list[CallReport] | None = None
) -> AsyncIterator[ASGIApp]:
    """Run a painter on the real loop behind the HTTP layer."""
    metrics = Metrics(record, bundle=MANIFEST.ref, model=MODEL)

    def observe(report: CallReport) -> None:
        metrics.observe(report)
        if reports is not None:
            reports.append(report)

    loop = loop_for(
        record,
        painter,
        record.bind(MANIFEST.model, MANIFEST.execution.dtype),
        state_bytes=2**26,
        bundle=MANIFEST.ref,
        observer=observe,
        limits=MANIFEST.limits,
    )
    loop.start()
    backend = LocalBackend(
        record=record, manifest=MANIFEST, alias=MODEL, loop=loop, metrics_source=metrics
    )
    try:
        yield build_app([record], backend, Settings())
    finally:
        await loop.stop(5.0)
