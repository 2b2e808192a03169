"""A bundle of images as ONNX: its network, with its normalisation, in one file."""

from __future__ import annotations

from pathlib import Path

from headpond.bundle.exporting import Exported, Quantization
from headpond.bundle.manifest import Execution
from headpond.bundle.store import Bundle, default_cache
from headpond.errors import BundleError
from headpond_workloads.vision.engine.forward import Classifier
from headpond_workloads.vision.engine.labels import Labels
from headpond_workloads.vision.engine.networks import load_network
from headpond_workloads.vision.engine.onnx_export import write_graph
from headpond_workloads.vision.engine.options import options_of, outputs_of
from headpond_workloads.vision.engine.preprocessing import Preprocessing

_REPLACED = frozenset({"weights", "config"})
_TORCH_ONLY = frozenset({"runtime", "checkpoint"})


def export(bundle: Bundle, folder: Path, *, quantization: Quantization | None) -> Exported:
    """Write a bundle's network as a graph; its preprocessing and its labels stay.

    The same labels and the same pixels go with any runtime, so the fixtures of the bundle hold
    for the graph.

    Args:
        bundle: With weights, or a checkpoint.
        folder: Where the graph goes.
        quantization: None; convolutions in a byte are neither fast nor exact on a CPU.

    Raises:
        BundleError: The bundle is a graph already, its files make no network, or fewer bits
            are asked for.
    """
    manifest = bundle.manifest
    if manifest.execution.architecture == "onnx":
        raise BundleError("the bundle is a graph already", param="execution.architecture")
    if quantization is not None:
        raise BundleError("networks of images are exported in float32 only", param="quantize")
    outputs, options = outputs_of(manifest), options_of(manifest)
    labels = len(Labels.of(bundle, outputs).names)
    network = load_network(bundle, labels, options.checkpoint, default_cache())
    preprocessing = Preprocessing.of(manifest)
    size = preprocessing.size
    path = folder / "model.onnx"
    classifier = Classifier(network, preprocessing.pixel_mean, preprocessing.pixel_std)
    write_graph(classifier, path, size.height, size.width)
    kept = {k: v for k, v in manifest.execution.options.items() if k not in _TORCH_ONLY}
    return Exported(
        execution=Execution(
            architecture="onnx", dtype="float32", options={**kept, "takes_pixels": True}
        ),
        files={"model": path},
        kept=tuple(
            each.name
            for each in manifest.artifacts
            if each.name not in _REPLACED - {outputs.labels}
        ),
    )
