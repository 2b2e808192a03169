"""What painting a picture takes of a device at least."""

from __future__ import annotations

from collections.abc import Mapping

from headpond.bundle.manifest import Execution, Manifest
from headpond.effort import Effort
from headpond.state import DTYPE_BYTES

_PROCESS_BYTES = 679 * 2**20
_FILE_WIDTH = 4
"""Bytes of a weight in a file, at most."""


def process_bytes(execution: Execution) -> int:
    """Return what a replica takes besides its weights and pictures."""
    del execution
    return _PROCESS_BYTES


def efforts(manifest: Manifest, shape: Mapping[str, int]) -> Mapping[str, Effort]:
    """Return the least that a picture takes: each weight once a pass, little of convolutions."""
    width = DTYPE_BYTES[manifest.execution.dtype]
    denoiser = _part_bytes(manifest, "denoiser") * min(width / _FILE_WIDTH, 1.0)
    decoder = _part_bytes(manifest, "autoencoder") * min(width / _FILE_WIDTH, 1.0)
    passes = shape["forwards"] * shape["passes"]
    return {
        "denoise": Effort(
            steps=shape["forwards"],
            shared_bytes=denoiser,
            operations=2 * denoiser / width * passes,
        ),
        # A picture needs one half of an autoencoder only.
        "decode": Effort(steps=1, shared_bytes=decoder / 2, operations=decoder / width),
    }


def _part_bytes(manifest: Manifest, part: str) -> int:
    """Return the size of the file that a part's weights are in, as its option names it."""
    option = manifest.execution.options.get(part)
    name = option.get("weights") if isinstance(option, dict) else None
    return next((file.bytes for file in manifest.artifacts if file.name == name), 0)
