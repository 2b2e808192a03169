"""What hearing takes of a device at least."""

from __future__ import annotations

from collections.abc import Mapping

from headpond.bundle.manifest import Execution, Manifest
from headpond.effort import Effort
from headpond.state import DTYPE_BYTES

_WINDOW_MS = 30_000
"""What a model that hears utterance by utterance takes in at once, at most."""

_PROCESS_BYTES, _STREAMING_PROCESS_BYTES = 590 * 2**20, 418 * 2**20


def process_bytes(execution: Execution) -> int:
    """Return what a replica takes besides its weights and streams."""
    return _STREAMING_PROCESS_BYTES if _streams(execution) else _PROCESS_BYTES


def efforts(manifest: Manifest, shape: Mapping[str, int]) -> Mapping[str, Effort]:
    """Return the least that a recording takes: each weight once for what is heard at once."""
    model, execution = manifest.model, manifest.execution
    heard_ms = model["chunk_ms"] if _streams(execution) else _WINDOW_MS
    passes = -(-shape["audio_ms"] // heard_ms)
    weights = model["weight_bytes"] / DTYPE_BYTES[execution.dtype]
    return {
        "listen": Effort(
            steps=passes, shared_bytes=model["weight_bytes"], operations=2 * weights * passes
        )
    }


def _streams(execution: Execution) -> bool:
    return execution.options.get("kind") == "streaming"
