"""What transformers reads in a bundle's files, in numbers and texts.

transformers knows what the files of hundreds of models mean, and costs three quarters of a
gigabyte with torch. A replica that computes natively needs its knowledge once: it is read
in a process of its own and kept, by bundle and versions.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from headpond.bundle.store import Bundle, default_cache
from headpond.state import DTYPE_BYTES
from headpond_workloads.generation.engine.apart import ReadTask, done_apart
from headpond_workloads.generation.engine.kv_shape import KvShape

_WEIGHT_BITS = {"int8": 8, "int4": 5}
"""Bits of a weight in layers, scales included: int4 has two of 16 bits for 32 weights."""


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, ser_json_bytes="base64", val_json_bytes="base64"
    )


class TokenizerReading(_Part):
    """A tokenizer and its chat templates.

    Attributes:
        backend: The tokenizer as the tokenizers library writes it.
        special_tokens: Those that have a role, by it, e.g. `bos_token`.
        templates: Its chat templates by name; one that is alone is the `default`.
        chat_control_tokens: Further tokens that only templates write; None where it has no
            list of them.
        splits_special: Whether texts never have control tokens.
    """

    backend: str
    special_tokens: dict[str, str | list[str]]
    templates: dict[str, str]
    chat_control_tokens: tuple[str, ...] | None
    splits_special: bool


class DecoderReading(_Part):
    """The sizes of a Llama-like decoder.

    Attributes:
        epsilon: Of its norms.
        windows: Of each layer, how many of the latest tokens it sees; None for all.
        frequencies: Radians a position turns each pair of a head's values by.
        rotation_scale: A factor of cosines and sines.
        tied: Whether the head's weights are the embedding's.
    """

    hidden: int
    heads: int
    intermediate: int
    activation: str
    epsilon: float
    windows: tuple[int | None, ...]
    frequencies: tuple[float, ...]
    rotation_scale: float
    tied: bool


class Reading(_Part):
    """A whole bundle.

    Attributes:
        architecture: The name of the model's class.
        dtype: What it computes in.
        weight_bytes: Of all its weights, in that.
        layer_weights: How many of them are in linear layers but the head.
        head_weights: How many are in the head.
        eos_ids: Tokens that end a sequence.
        plain: The logits of the probe's sequences, float32 of shape [2, vocabulary]; empty
            where the weights were not read.
        tokenizer: Reads its prompts.
        decoder: What it is, where it is one that can be computed natively, and its weights
            were read.
    """

    architecture: str
    dtype: str
    layers: int
    kv_heads: int
    head_dim: int
    context_tokens: int
    vocab_tokens: int
    weight_bytes: int
    layer_weights: int
    head_weights: int
    eos_ids: tuple[int, ...]
    plain: bytes
    tokenizer: TokenizerReading
    decoder: DecoderReading | None

    @property
    def plain_logits(self) -> NDArray[np.float32]:
        """What transformers computes for the probe, of shape [2, vocabulary]."""
        return np.frombuffer(self.plain, dtype=np.float32).reshape(2, -1)

    def kv_shape(self, block_tokens: int) -> KvShape:
        """Return what keys and values look like in blocks of so many tokens."""
        return KvShape(
            layers=self.layers,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            block_tokens=block_tokens,
            dtype=self.dtype,
        )

    def quantized_bytes(self, quantization: str | None) -> int:
        """Return the bytes of the weights; those of linear layers as they are quantized."""
        if quantization is None:
            return self.weight_bytes
        kept = self.weight_bytes - self.layer_weights * DTYPE_BYTES[self.dtype]
        return kept + self.read_bytes(quantization)

    def read_bytes(self, quantization: str | None) -> int:
        """Return the bytes of the weights that a token is multiplied with, head included."""
        if quantization is None:
            return (self.layer_weights + self.head_weights) * DTYPE_BYTES[self.dtype]
        return self.layer_weights * _WEIGHT_BITS[quantization] // 8 + self.head_weights


def read(folder: Path, bundle: Bundle, *, weights: bool = True) -> Reading:
    """Return what transformers reads in a bundle's folder.

    Where this process has torch already, it is read here: that is paid for.

    Args:
        folder: The bundle's files.
        bundle: The bundle.
        weights: Whether to load the weights, which takes the memory of all of them.

    Raises:
        BundleError: It is not the architecture the bundle names, or none that is served.
    """
    execution = bundle.manifest.execution
    if "torch" in sys.modules:
        from headpond_workloads.generation.engine.transformers_reading import (  # noqa: PLC0415
            read_folder,
            read_outline,
        )

        read_here = read_folder if weights else read_outline
        return read_here(folder, execution.architecture, execution.dtype)
    kept = default_cache() / "readings" / f"{_identity(bundle)}{'' if weights else '-outline'}.json"
    found = _kept(kept)
    if found is not None:
        return found
    task = ReadTask(
        folder=folder,
        architecture=execution.architecture,
        dtype=execution.dtype,
        weights=weights,
    )
    text = done_apart(task)
    _keep(kept, text)
    return Reading.model_validate_json(text)


def _identity(bundle: Bundle) -> str:
    """Return a digest of everything that a reading depends on."""
    digest = hashlib.sha256(bundle.manifest.digest.encode())
    for library in ("torch", "transformers", "tokenizers"):
        digest.update(f" {library} {version(library)}".encode())
    for module in ("reading.py", "transformers_reading.py"):
        digest.update(Path(__file__).with_name(module).read_bytes())
    return digest.hexdigest()[:32]


def _kept(path: Path) -> Reading | None:
    try:
        return Reading.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _keep(path: Path, text: str) -> None:
    """Write a file that has its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(part).replace(path)
