"""What classifying an image takes of a device at least."""

from __future__ import annotations

from collections.abc import Mapping

from headpond.bundle.manifest import Execution, Manifest
from headpond.effort import Effort
from headpond.state import DTYPE_BYTES

_PROCESS_BYTES = 530 * 2**20


def process_bytes(execution: Execution) -> int:
    """Return what a replica takes besides its weights and batches."""
    del execution
    return _PROCESS_BYTES


def efforts(manifest: Manifest, shape: Mapping[str, int]) -> Mapping[str, Effort]:
    """Return the least that an image takes: each weight once, which is little of convolutions."""
    weight_bytes = manifest.model["weight_bytes"]
    weights = weight_bytes / DTYPE_BYTES[manifest.execution.dtype]
    operations = 2 * weights * shape["images"]
    return {"forward": Effort(steps=1, shared_bytes=weight_bytes, operations=operations)}
