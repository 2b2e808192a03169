"""What reading a prompt and writing tokens take of a device at least."""

from __future__ import annotations

from collections.abc import Mapping

from headpond.bundle.manifest import Execution, Manifest
from headpond.effort import Effort
from headpond.state import DTYPE_BYTES

CHUNK_TOKENS = 512
"""Prompt tokens of one step, at most."""

_PROCESS_BYTES = 172 * 2**20
_VLLM_BYTES = 1200 * 2**20


def process_bytes(execution: Execution) -> int:
    """Return what a replica takes besides weights and keys and values.

    It loads no torch, but where vLLM has a process of its own.
    """
    vllm = execution.options.get("engine") == "vllm"
    return _PROCESS_BYTES + (_VLLM_BYTES if vllm else 0)


def efforts(manifest: Manifest, shape: Mapping[str, int]) -> Mapping[str, Effort]:
    """Return the least that a prompt and its answer take.

    Every weight is read once a step; keys and values of what came before, once a token. The
    head is computed for the last token of a prompt only. Of attention only as many heads are
    counted as there are of keys and values.
    """
    model = manifest.model
    width = model["layers"] * model["kv_heads"] * model["head_dim"]
    kv_bytes = 2 * width * DTYPE_BYTES[manifest.execution.dtype]
    prompt, outputs = shape["prompt_tokens"], shape["max_output_tokens"]
    read = max(1, prompt - shape["cached_tokens"])
    written = max(0, outputs - 1)  # the first comes from the prompt's last step
    seen = written * prompt + written * (written + 1) // 2
    layers, head = 2 * model["layer_weights"], 2 * model["head_weights"]
    dtype = "int8" if manifest.execution.options.get("quantization") else None
    return {
        "prefill": Effort(
            steps=-(-read // CHUNK_TOKENS),
            shared_bytes=model["read_bytes"],
            own_bytes=kv_bytes * prompt,
            operations=layers * read + head + 4 * width * read * (prompt - read / 2),
            dtype=dtype,
        ),
        "decode": Effort(
            steps=written,
            shared_bytes=model["read_bytes"],
            own_bytes=kv_bytes * seen,
            operations=(layers + head) * written + 4 * width * seen,
            dtype=dtype,
        ),
    }
