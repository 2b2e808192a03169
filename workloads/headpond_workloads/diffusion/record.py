"""The declaration of diffusion: everything that differs from other workloads."""

from __future__ import annotations

from headpond.bundle.contract import Contract
from headpond.errors import (
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    Overloaded,
    PayloadTooLarge,
    RequestCancelled,
    WorkerLost,
)
from headpond.record import (
    Bounds,
    Continuous,
    Dim,
    Failure,
    Fit,
    Limiter,
    Overload,
    Phase,
    PhaseKind,
    RequestShape,
    Shape,
    Tally,
    ThroughputUnit,
    WorkloadRecord,
)
from headpond.state import Lifetime, StateTerm
from headpond.units import Work, WorkUnit
from headpond_workloads.diffusion.dialects import routes
from headpond_workloads.diffusion.effort import efforts, process_bytes
from headpond_workloads.diffusion.schema_fields import MAX_PICTURES, MAX_STEPS

_LARGE_PICTURE = 1024 * 1024 * 50 * 2
"""Pixel-steps of a megapixel with guidance in fifty steps."""

_MAX_FORWARDS = MAX_STEPS + 1
"""PNDM takes its second step twice."""

_MAX_PASSES = 2
"""Guidance takes a second pass, without the prompt, in the same forward."""

_MAX_SOURCES = 3
"""Of an edit: the latents of its source, those of its mask, and the noise they began with."""


def cost(shape: Shape) -> Work:
    """Return the pixels, times how often each is computed."""
    return Work(pixel_steps=shape["pixels"] * shape["forwards"] * shape["passes"])


record = WorkloadRecord(
    name="diffusion",
    summary="Pictures from text, and from other pictures.",
    routes=routes,
    request=RequestShape(
        dims=(
            # Of a video, pixels and latents are those of all its frames together.
            Dim(
                name="pixels",
                summary="pixels of the picture",
                limit="pixels",
                param="size",
            ),
            Dim(
                name="latents",
                summary="places of the latents: rows times columns",
                limit="latents",
                param="size",
            ),
            Dim(
                name="steps",
                summary="denoising steps that are asked for",
                limit=MAX_STEPS,
                param="num_inference_steps",
            ),
            Dim(
                name="forwards",
                summary="of those, the ones that are run; PNDM runs one more",
                limit=_MAX_FORWARDS,
                param="num_inference_steps",
            ),
            Dim(
                name="passes",
                summary="rows of a forward: 2 with guidance, else 1",
                limit=_MAX_PASSES,
                param="guidance_scale",
            ),
            Dim(
                name="sources",
                summary="tensors of the latents' size that an edit holds besides",
                limit=_MAX_SOURCES,
                param="image",
            ),
        ),
        max_items=MAX_PICTURES,
        max_body_bytes=64 * 2**20,
    ),
    units=(WorkUnit(name="pixel_steps", summary="pixel that went through the model once"),),
    cost=cost,
    symbols=(
        "pixels",
        "latents",
        "latent_channels",
        "history",
        "conditioning",
        "activations",
        "weight_bytes",
        "workspace_bytes",
    ),
    # Nothing grows with the steps: a request holds the same from the first to the last.
    state=(
        StateTerm(name="latents", shape=("latents", "latent_channels"), dtype="float32"),
        StateTerm(name="history", shape=("history", "latents", "latent_channels"), dtype="float32"),
        StateTerm(name="source", shape=("sources", "latents", "latent_channels"), dtype="float32"),
        StateTerm(name="conditioning", shape=("passes", "conditioning")),
        StateTerm(name="picture", shape=("pixels", 3), dtype="uint8"),
        StateTerm(
            name="activations",
            shape=("passes", "latents", "activations"),
            lifetime=Lifetime.FORWARD,
        ),
    ),
    batching=Continuous(
        axis="steps",
        extent=("forwards",),
        compatible_by=("latents", "conditioning"),
        step_budget=64,
    ),
    throughput=(
        ThroughputUnit(
            unit="pixel_steps",
            bounds=Bounds(total_s=60.0),
            quality="pictures equal those of the diffusers pipeline run alone with their seeds",
        ),
    ),
    phases=(
        Phase(name="validate", kind=PhaseKind.HOST, summary="check the request"),
        Phase(
            name="prepare",
            kind=PhaseKind.HOST,
            summary="tokenize, decode source images, lay out the steps",
        ),
        Phase(name="queue", kind=PhaseKind.QUEUE, summary="wait for memory and a turn"),
        Phase(name="condition", kind=PhaseKind.DEVICE, summary="encode prompts, draw noise"),
        Phase(name="denoise", kind=PhaseKind.DEVICE, summary="step the latents"),
        Phase(name="decode", kind=PhaseKind.DEVICE, summary="turn the latents into pixels"),
        Phase(name="encode", kind=PhaseKind.HOST, summary="write the pixels as a file"),
        Phase(name="delivery", kind=PhaseKind.DELIVERY, summary="hand the rest to the caller"),
    ),
    fit=Fit(
        devices=("cpu", "cuda"),
        dtypes=("float32", "bfloat16", "float16"),
        limited_by=Limiter.COMPUTE,
        static_bytes=("weight_bytes", "workspace_bytes"),
        process_bytes=process_bytes,
        efficiency=0.01,  # see docs/planning.md
    ),
    overload=Overload(
        queue_limit=Work(pixel_steps=128 * _LARGE_PICTURE),
        deadline_s=600.0,
        wait_s=60.0,
        exact=True,
        failures=(
            Failure(
                name="too_large",
                summary="a size, a number of steps or a scheduler that is not the model's",
                error=InvalidRequest,
            ),
            Failure(
                name="malformed",
                summary="a source or a mask is no image, or a broken one",
                error=InvalidRequest,
            ),
            Failure(
                name="bomb",
                summary="a small source says that it holds more pixels than are decoded",
                error=PayloadTooLarge,
            ),
            Failure(
                name="flood",
                summary="more pixel-steps wait than are done in time",
                error=Overloaded,
            ),
            Failure(
                name="expired",
                summary="the deadline passes before the last step, or would: known at the start",
                error=DeadlineExceeded,
            ),
            Failure(
                name="disconnect",
                summary="the caller leaves amid the steps",
                error=RequestCancelled,
            ),
            Failure(
                name="lost_replica",
                summary="the replica dies amid the steps; asked again, the picture is the same",
                error=WorkerLost,
            ),
            Failure(
                name="out_of_memory",
                summary="one picture does not fit beside the others",
                error=EngineFailed,
            ),
            Failure(
                name="not_finite",
                summary="the latents of one picture hold NaN or infinity",
                error=EngineFailed,
            ),
        ),
    ),
    contracts=(
        Contract(name="tokens", vouches_for="tokenizer"),
        Contract(name="conditioning", vouches_for="text encoders"),
        Contract(name="latents", vouches_for="denoiser, schedulers, precision or kernels"),
        Contract(name="pixels", vouches_for="decoder of the latents"),
    ),
    engine="headpond_workloads.diffusion.engine.load:load",
    efforts=efforts,
    tallies=(
        Tally(name="pictures", summary="Pictures that were finished."),
        Tally(name="previews", summary="Previews that were given."),
        Tally(name="denoiser_forwards", summary="Forwards of the denoiser."),
        Tally(name="denoiser_rows", summary="Rows in them; guidance takes two a picture."),
    ),
    panel="headpond_workloads.diffusion.panel",
)
