"""From a bundle to a network on the runtime that suits the machine."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import nn

from headpond.bundle.manifest import Manifest
from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.vision.engine.forward import Classifier, Floats, Forward, TorchForward
from headpond_workloads.vision.engine.networks import load_network
from headpond_workloads.vision.engine.onnx_export import exported
from headpond_workloads.vision.engine.onnx_forward import OnnxForward
from headpond_workloads.vision.engine.options import Options
from headpond_workloads.vision.engine.preprocessing import Preprocessing

_AGREEMENT = 1e-3
"""Logits of an exported network may differ by this, relative to the largest one."""


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """A network that is ready.

    Attributes:
        forward: Computes it.
        weight_bytes: Memory of its weights.
    """

    forward: Forward
    weight_bytes: int


def assemble(
    bundle: Bundle,
    options: Options,
    preprocessing: Preprocessing,
    *,
    labels: int,
    device: str,
    threads: int,
    cache: Path,
) -> Assembly:
    """Load a bundle's network and choose what computes it.

    Raises:
        BundleError: The files make no such network, or the options can't be kept.
    """
    execution = bundle.manifest.execution
    runtime = options.runtime
    plain = device == "cpu" and execution.dtype == "float32"
    if execution.architecture == "onnx":
        if execution.dtype != "float32" or runtime == "torch":
            raise BundleError("an ONNX file is computed by ONNX Runtime, in float32", param=_PARAM)
        return _file(bundle, device, threads, takes_pixels=options.takes_pixels)
    if runtime == "onnxruntime" and not plain:
        raise BundleError("networks are exported to ONNX for float32 on the CPU", param=_PARAM)
    network = load_network(bundle, labels, options.checkpoint, cache)
    classifier = Classifier(network, preprocessing.pixel_mean, preprocessing.pixel_std)
    size = preprocessing.size
    if runtime != "torch" and plain:
        path = exported(classifier, _digest(bundle.manifest), size.height, size.width, cache)
        forward = OnnxForward(path, device=device, threads=threads, takes_pixels=True)
        _check_agreement(classifier, forward, (1, size.height, size.width, 3))
        return Assembly(forward=forward, weight_bytes=_weight_bytes(network))
    dtype: torch.dtype = getattr(torch, execution.dtype)
    torch_forward = TorchForward(classifier, torch.device(device), dtype)
    return Assembly(forward=torch_forward, weight_bytes=_weight_bytes(network))


_PARAM = "execution.options.runtime"


def _digest(manifest: Manifest) -> str:
    """Return the digest of all that makes a network: not of fixtures, names or dates."""
    parts = manifest.model_dump_json(include={"artifacts", "input", "execution", "workload"})
    return sha256(parts.encode()).hexdigest()


def _file(bundle: Bundle, device: str, threads: int, *, takes_pixels: bool) -> Assembly:
    path = bundle.files.get("model")
    if path is None:
        raise BundleError("architecture 'onnx' needs the artifact 'model'", param="artifacts")
    forward = OnnxForward(path, device=device, threads=threads, takes_pixels=takes_pixels)
    return Assembly(forward=forward, weight_bytes=path.stat().st_size)


def _weight_bytes(network: nn.Module) -> int:
    return sum(each.numel() * each.element_size() for each in network.parameters())


def _check_agreement(classifier: Classifier, forward: Forward, shape: tuple[int, ...]) -> None:
    """Hold what was exported, perhaps long ago, to the modules it was exported from.

    Raises:
        BundleError: It computes something else.
    """
    pixels: Floats = np.random.default_rng(0).integers(0, 256, shape).astype(np.float32)
    with torch.inference_mode():
        expected = classifier(torch.from_numpy(pixels)).numpy()
    apart = np.abs(forward(pixels) - expected).max() / np.abs(expected).max()
    if not apart <= _AGREEMENT:
        raise BundleError(
            f"the network exported to ONNX differs by {apart:.1e} from its modules; "
            "runtime: torch computes these",
            param=_PARAM,
        )
