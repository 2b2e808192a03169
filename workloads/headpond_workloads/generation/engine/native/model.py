"""A bundle's model on the native decoder; torch is never there."""

from __future__ import annotations

from pathlib import Path

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.adapters import load_adapters
from headpond_workloads.generation.engine.checkpoint import Checkpoint
from headpond_workloads.generation.engine.forward import Forward, Opened
from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.native.adapters import NativeAdapters
from headpond_workloads.generation.engine.native.cache import NativeKvCache
from headpond_workloads.generation.engine.native.library import library
from headpond_workloads.generation.engine.native.runner import NativeRunner
from headpond_workloads.generation.engine.native.weights import (
    NativeWeights,
    check_declared,
    check_supported,
)
from headpond_workloads.generation.engine.options import Options
from headpond_workloads.generation.engine.reading import read
from headpond_workloads.native.library import NativeUnavailable
from headpond_workloads.native.packing import Format

_FORMATS = {"float32": Format.FLOAT32, "bfloat16": Format.BFLOAT16}
_QUANTIZED = {"int8": (Format.INT8, Format.INT8), "int4": (Format.INT4, Format.INT8)}
"""Formats of the layers and of the head, whose rounding shows in every logit."""


def open_native(
    folder: Path,
    bundle: Bundle,
    options: Options,
    settings: EngineSettings,
    block_tokens: int,
) -> Opened:
    """Pack a bundle's model, and give what makes forwards of it.

    Args:
        folder: The bundle's files as transformers reads them.
        bundle: The bundle.
        options: Its options.
        settings: Of the deployment.
        block_tokens: Tokens of a KV block.

    Raises:
        NativeUnavailable: It is none that the decoder computes, or this machine can't.
        BundleError: It can't be served at all, or an adapter doesn't fit.
    """
    if settings.device != "cpu":
        raise NativeUnavailable(f"the model is on {settings.device}")
    if block_tokens % 16:
        raise NativeUnavailable(f"blocks of {block_tokens} tokens are no multiple of 16")
    execution = bundle.manifest.execution
    check_declared(execution.architecture, execution.dtype)
    library()
    reading = read(folder, bundle)
    check_supported(reading)
    exact = _FORMATS[reading.dtype]
    layers, head = _QUANTIZED[options.quantization] if options.quantization else (exact, exact)
    with Checkpoint(folder) as weights:
        packed = NativeWeights(reading, weights, layers, head)
    try:
        adapters = NativeAdapters(packed.structure, load_adapters(bundle, options.adapters))
    except ValueError as error:
        raise BundleError(f"an adapter does not fit: {error}", param="execution.options") from error

    def make(shape: KvShape, blocks: int) -> Forward:
        cache = NativeKvCache(shape, blocks)
        runner = NativeRunner(packed, cache, threads=settings.threads, adapters=adapters)
        return Forward(runner=runner, cache=cache)

    return Opened(reading=reading, shape=reading.kv_shape(block_tokens), make=make)
