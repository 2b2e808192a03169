"""What encoding a text takes of a device at least."""

from __future__ import annotations

from collections.abc import Mapping

from headpond.bundle.manifest import Execution, Manifest
from headpond.effort import Effort
from headpond.state import DTYPE_BYTES

_LAYER_SQUARES = 12
"""Weights of a layer, in squares of its width: 4 of attention, 8 of two linear layers."""

_PROCESS_BYTES, _ONNX_PROCESS_BYTES = 377 * 2**20, 471 * 2**20


def process_bytes(execution: Execution) -> int:
    """Return what a replica takes besides its weights and batches."""
    onnx = execution.options.get("engine") == "onnx"
    return _ONNX_PROCESS_BYTES if onnx else _PROCESS_BYTES


def efforts(manifest: Manifest, shape: Mapping[str, int]) -> Mapping[str, Effort]:
    """Return the least that a text takes in an encoder of BERT's proportions."""
    model, execution = manifest.model, manifest.execution
    layers, hidden, tokens = model["layers"], model["hidden"], shape["tokens"]
    weights = layers * _LAYER_SQUARES * hidden**2
    options = execution.options
    small = "quantization" in options or options.get("engine") == "onnx"
    return {
        "forward": Effort(
            steps=1,
            shared_bytes=weights * (1 if small else DTYPE_BYTES[execution.dtype]),
            operations=2 * weights * tokens + 4 * layers * hidden * tokens**2,
            dtype="int8" if small else None,
        )
    }
