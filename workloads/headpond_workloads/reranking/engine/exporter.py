"""A bundle of reranking as ONNX: the encoder's graph and, of a cross-encoder, its head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headpond.bundle.exporting import Exported, Quantization
from headpond.bundle.store import Bundle
from headpond_workloads.encoders import onnx_export
from headpond_workloads.encoders.config import read_config
from headpond_workloads.encoders.head import write_head
from headpond_workloads.encoders.options import options_of
from headpond_workloads.encoders.weights import WeightFile
from headpond_workloads.reranking.engine.load import RerankingOptions


def export(bundle: Bundle, folder: Path, *, quantization: Quantization | None) -> Exported:
    """Write a bundle's encoder as a graph; a head stays outside of it, in float32.

    Args:
        bundle: With safetensors weights.
        folder: Where the files go.
        quantization: As for the encoder's own export; never the head's.

    Raises:
        BundleError: The files don't make an encoder, or one without the head it needs.
    """
    exported = onnx_export.export(bundle, folder, quantization=quantization)
    if options_of(bundle.manifest, RerankingOptions).scoring == "maxsim":
        return exported
    config = read_config(bundle)
    path = folder / "head.safetensors"
    write_head(WeightFile(bundle, config.family), config, path)
    return replace(exported, files={**exported.files, "weights": path})
