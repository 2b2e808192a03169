"""From a bundle and a deployment's settings to an engine that is ready to classify."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from headpond.bundle.store import Bundle, default_cache
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.vision.engine.assembly import Assembly, assemble
from headpond_workloads.vision.engine.engine import VisionEngine
from headpond_workloads.vision.engine.labels import Labels
from headpond_workloads.vision.engine.options import Options, options_of, outputs_of
from headpond_workloads.vision.engine.preprocessing import Preprocessing
from headpond_workloads.vision.items import Description
from headpond_workloads.vision.record import MAX_PIXELS, record

_BATCH_IMAGES = {"cpu": 4, "cuda": 32}
"""On a CPU more images at once take no less time each, and from 8 on more: caches are small."""


def load(bundle: Bundle, settings: EngineSettings, *, cache: Path | None = None) -> VisionEngine:
    """Load the bundle's network onto the device.

    Args:
        bundle: The bundle.
        settings: The deployment's; each of its threads computes batches of its own.
        cache: Where converted networks are kept; `default_cache()` when None.

    Raises:
        BundleError: The files don't make a classifier that this engine can serve.
    """
    device = _device(settings)
    # One thread for each lane, rather than one batch over all of them.
    torch.set_num_threads(1)
    preprocessing = Preprocessing.of(bundle.manifest)
    options, outputs = options_of(bundle.manifest), outputs_of(bundle.manifest)
    labels = Labels.of(bundle, outputs)
    assembly = assemble(
        bundle,
        options,
        preprocessing,
        labels=len(labels.names),
        device=settings.device,
        threads=settings.threads,
        cache=cache if cache is not None else default_cache(),
    )
    _check_outputs(assembly, preprocessing, labels)
    max_pixels = min(bundle.manifest.limits.get("pixels", MAX_PIXELS), MAX_PIXELS)
    budget = _budget(assembly, options, device)
    return VisionEngine(
        forward=assembly.forward,
        preprocessing=preprocessing,
        labels=labels,
        max_pixels=max_pixels,
        lanes=settings.threads if device == "cpu" else 1,
        express_lanes=settings.threads if device == "cpu" else 0,
        budget=budget,
        symbols={
            "labels": len(labels.names),
            "input_height": preprocessing.size.height,
            "input_width": preprocessing.size.width,
            "weight_bytes": assembly.weight_bytes,
        },
        description=Description(
            model=f"{bundle.manifest.name}@{bundle.manifest.version}",
            digest=bundle.manifest.digest,
            dtype=bundle.manifest.execution.dtype,
            input_height=preprocessing.size.height,
            input_width=preprocessing.size.width,
            labels=labels.names,
            max_pixels=max_pixels,
            max_batch_images=budget,
        ),
    )


def _device(settings: EngineSettings) -> str:
    device = torch.device(settings.device)
    if device.type not in record.fit.devices:
        raise BundleError(f"vision runs on {', '.join(record.fit.devices)}, not {device.type}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BundleError(f"the deployment asks for {settings.device}, and there is no CUDA device")
    return device.type


def _check_outputs(assembly: Assembly, preprocessing: Preprocessing, labels: Labels) -> None:
    """Classify a black image: the first forward takes longest, and shows the outputs."""
    size = preprocessing.size
    logits = assembly.forward(np.zeros((1, size.height, size.width, 3), np.float32))
    if logits.shape != (1, len(labels.names)):
        raise BundleError(
            f"the network's outputs are {logits.shape[1:]}, and there are "
            f"{len(labels.names)} labels",
            param="output.labels",
        )


def _budget(assembly: Assembly, options: Options, device: str) -> int:
    wanted = options.batch_images or _BATCH_IMAGES[device]
    return min(wanted, assembly.forward.max_batch or wanted)
