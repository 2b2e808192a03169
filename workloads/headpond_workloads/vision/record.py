"""The declaration of image classification: everything that differs from other workloads."""

from __future__ import annotations

from headpond.bundle.contract import Contract
from headpond.errors import (
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    Overloaded,
    PayloadTooLarge,
)
from headpond.record import (
    Bounds,
    Dim,
    Failure,
    Fit,
    Formed,
    Limiter,
    Overload,
    Phase,
    PhaseKind,
    RequestShape,
    Shape,
    ThroughputUnit,
    WorkloadRecord,
)
from headpond.state import Lifetime, StateTerm
from headpond.units import Work, WorkUnit
from headpond_workloads.oip.errors import oip_unserved
from headpond_workloads.vision.compared import compared
from headpond_workloads.vision.dialects import routes
from headpond_workloads.vision.effort import efforts, process_bytes
from headpond_workloads.vision.schema import MAX_IMAGES

MAX_PIXELS = 50_000_000
"""The largest image that is ever decoded; a bundle's `limits.pixels` may say less."""

_ACTIVATIONS = 32
"""Live activations for each pixel of the input, at most, in the networks that are served."""


def cost(shape: Shape) -> Work:
    """Return what is decoded and what is computed."""
    return Work(pixels=shape["pixels"], images=shape["images"])


_QUALITY = "logits equal the reference library's, from preprocessing that equals its own"

record = WorkloadRecord(
    name="vision",
    summary="What images show: labels with scores.",
    routes=routes,
    request=RequestShape(
        dims=(
            Dim(
                name="pixels",
                summary="pixels of the image as its header says, before it is decoded",
                limit=MAX_PIXELS,
                param="image",
            ),
            Dim(name="images", summary="images: one an item"),
            Dim(
                name="input_height",
                summary="rows of the model's input",
                limit="input_height",
                param="image",
            ),
            Dim(
                name="input_width",
                summary="columns of the model's input",
                limit="input_width",
                param="image",
            ),
        ),
        max_items=MAX_IMAGES,
        max_body_bytes=64 * 2**20,
    ),
    units=(
        # Decoding four million pixels takes about as long as one forward of a small network.
        WorkUnit(name="pixels", summary="pixel that was decoded", weight=2.5e-7),
        WorkUnit(name="images", summary="image that was classified"),
    ),
    cost=cost,
    symbols=("labels", "input_height", "input_width", "weight_bytes"),
    state=(
        StateTerm(
            name="input",
            shape=("images", "input_height", "input_width", 3),
            dtype="float32",
        ),
        StateTerm(
            name="activations",
            shape=("images", "input_height", "input_width", _ACTIVATIONS),
            lifetime=Lifetime.FORWARD,
        ),
    ),
    batching=Formed(axis="images", budget=32, bucket_by=("input_height", "input_width")),
    throughput=(
        ThroughputUnit(unit="images", bounds=Bounds(total_s=1.0), quality=_QUALITY),
        ThroughputUnit(unit="pixels", bounds=Bounds(total_s=1.0), quality=_QUALITY),
    ),
    phases=(
        Phase(name="validate", kind=PhaseKind.HOST, summary="check the request"),
        Phase(name="decode", kind=PhaseKind.HOST, summary="decode, turn upright, resize, crop"),
        Phase(name="queue", kind=PhaseKind.QUEUE, summary="wait for a turn"),
        Phase(name="forward", kind=PhaseKind.DEVICE, summary="normalise, compute, pick classes"),
        Phase(name="delivery", kind=PhaseKind.DELIVERY, summary="hand the classes to the caller"),
    ),
    fit=Fit(
        devices=("cpu", "cuda"),
        dtypes=("float32", "bfloat16", "float16"),
        limited_by=Limiter.CODEC,
        static_bytes=("weight_bytes",),
        process_bytes=process_bytes,
        efficiency=0.005,  # see docs/planning.md
    ),
    overload=Overload(
        queue_limit=Work(images=1024, pixels=4_000_000_000),
        deadline_s=30.0,
        wait_s=10.0,
        failures=(
            Failure(
                name="bomb",
                summary="a small file says that it holds more pixels than are decoded",
                error=PayloadTooLarge,
            ),
            Failure(
                name="malformed",
                summary="a file is no image, or a broken one",
                error=InvalidRequest,
            ),
            Failure(
                name="codec_flood",
                summary="images come faster than they are decoded or classified",
                error=Overloaded,
            ),
            Failure(
                name="queue_expired",
                summary="the deadline passes before the forward",
                error=DeadlineExceeded,
            ),
            Failure(
                name="not_finite",
                summary="the outputs for one image hold NaN or infinity",
                error=EngineFailed,
            ),
        ),
    ),
    contracts=(
        Contract(name="pixels", vouches_for="decoder or preprocessing"),
        Contract(name="logits", vouches_for="weights, precision or kernels"),
        Contract(name="labels", vouches_for="labels"),
    ),
    engine="headpond_workloads.vision.engine.load:load",
    compared=compared,
    efforts=efforts,
    exporter="headpond_workloads.vision.engine.exporter:export",
    unserved=oip_unserved,
    panel="headpond_workloads.vision.panel",
)
