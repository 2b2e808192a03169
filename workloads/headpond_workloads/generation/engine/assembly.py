"""A model's forward and its cache memory: native where that can be, else transformers'."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headpond.errors import BundleError
from headpond_workloads.generation.engine.adapters import AdapterWeights
from headpond_workloads.generation.engine.attention import Attention
from headpond_workloads.generation.engine.cuda_graphs import recorder_of
from headpond_workloads.generation.engine.flex_attention import FlexAttention, check_flex
from headpond_workloads.generation.engine.forward import CacheMemory, Runner
from headpond_workloads.generation.engine.kv_cache import KvCache, KvShape
from headpond_workloads.generation.engine.native.adapters import NativeAdapters
from headpond_workloads.generation.engine.native.cache import NativeKvCache
from headpond_workloads.generation.engine.native.library import library
from headpond_workloads.generation.engine.native.runner import NativeRunner
from headpond_workloads.generation.engine.native.sampling import draw
from headpond_workloads.generation.engine.native.weights import NativeWeights, check_supported
from headpond_workloads.generation.engine.options import Options
from headpond_workloads.generation.engine.probe import check_forward
from headpond_workloads.generation.engine.runner import ModelRunner
from headpond_workloads.generation.engine.sampler import Drawer
from headpond_workloads.generation.engine.sdpa_attention import SdpaAttention
from headpond_workloads.generation.engine.static_decode import StaticDecode
from headpond_workloads.native.library import NativeUnavailable
from headpond_workloads.native.packing import Format

logger = logging.getLogger(__name__)

_PROBE_BLOCKS, _PROBE_BLOCK_TOKENS = 2, 16

_FORMATS = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}
_QUANTIZED = {"int8": (Format.INT8, Format.INT8), "int4": (Format.INT4, Format.INT8)}
"""Formats of the layers and of the head, whose rounding shows in every logit."""


@dataclass(frozen=True, kw_only=True)
class Forward:
    """What `GenerationEngine` computes with.

    Attributes:
        runner: Computes steps.
        cache: The memory of keys and values that it reads and writes.
        drawer: Its own way to draw tokens, if it has one.
    """

    runner: Runner
    cache: CacheMemory
    drawer: Drawer | None = None


def assemble(
    model: PreTrainedModel,
    shape: KvShape,
    blocks: int,
    *,
    plain: Tensor,
    options: Options,
    threads: int,
    adapters: Sequence[AdapterWeights] = (),
    max_slots: int,
) -> Forward:
    """Choose a forward for `model`, try it, and give it `blocks` blocks of cache.

    Args:
        model: What is to be computed.
        shape: Of its keys and values.
        blocks: Blocks of cache.
        plain: What transformers computes for the probe: `probe.plain_logits`.
        options: The bundle's.
        threads: Compute threads.
        adapters: LoRA adapters, in the order of their numbers.
        max_slots: The most sequences of a step.

    Raises:
        BundleError: The options ask for what can't be, or what was assembled computes
            something else than the model.
    """
    native = _native(model, shape, options, threads, adapters)
    make = native or _torch(model, shape, options, max_slots)
    quantized = options.quantization is not None
    probed = make(replace(shape, block_tokens=_PROBE_BLOCK_TOKENS), _PROBE_BLOCKS)
    check_forward(model, probed.runner, plain, quantized=quantized)
    return make(shape, blocks)


def _torch(
    model: PreTrainedModel, shape: KvShape, options: Options, max_slots: int
) -> Callable[[KvShape, int], Forward]:
    """Return what makes a forward of transformers' modules."""
    recorder = recorder_of(options.cuda_graphs, model.device)
    if options.attention == "flex":
        check_flex(shape, model.device)
    context_tokens = model.config.get_text_config().max_position_embeddings

    def make(shape: KvShape, blocks: int) -> Forward:
        cache = KvCache(shape, blocks, model.device)
        max_blocks = min(-(-context_tokens // shape.block_tokens), blocks)
        attention: Attention = SdpaAttention(cache)
        if options.attention == "flex":
            attention = FlexAttention(cache, max_blocks)
        decode = None
        if recorder is not None:
            max_rows = min(max_slots, blocks)
            decode = StaticDecode(
                model, cache, attention, recorder, max_rows=max_rows, max_blocks=max_blocks
            )
        return Forward(runner=ModelRunner(model, cache, attention, decode), cache=cache)

    return make


def _native(
    model: PreTrainedModel,
    shape: KvShape,
    options: Options,
    threads: int,
    adapters: Sequence[AdapterWeights],
) -> Callable[[KvShape, int], Forward] | None:
    """Return what makes a native forward, or None where transformers' modules have to do."""
    needed_for, torch_for = _needs_native(options), _needs_torch(options)
    if torch_for is not None:
        if needed_for is not None:
            raise BundleError(
                f"{needed_for} needs the native kernels, {torch_for} those of torch",
                param="execution.options",
            )
        return None
    try:
        weights = _pack(model, shape, options)
        packed = NativeAdapters(weights.structure, adapters)
    except ValueError as error:
        raise BundleError(f"an adapter does not fit: {error}", param="execution.options") from error
    except NativeUnavailable as reason:
        if needed_for is not None:
            raise BundleError(f"{needed_for}: {reason}", param="execution.options") from reason
        logger.warning("computing with transformers' modules: %s", reason)
        return None

    # The threads of torch's own pool would spin on the cores that the decoder's need next.
    torch.set_num_threads(1)

    def make(shape: KvShape, blocks: int) -> Forward:
        cache = NativeKvCache(shape, blocks)
        runner = NativeRunner(weights, cache, threads=threads, adapters=packed)
        return Forward(runner=runner, cache=cache, drawer=draw)

    return make


def _needs_torch(options: Options) -> str | None:
    if options.attention is not None:
        return f"attention: {options.attention}"
    if options.cuda_graphs is True:
        return "cuda_graphs: true"
    return "kernels: torch" if options.kernels == "torch" else None


def _needs_native(options: Options) -> str | None:
    if options.quantization is not None:
        return f"quantization: {options.quantization}"
    if options.adapters:
        return "adapters"
    if options.determinism is not None:
        return f"determinism: {options.determinism}"
    return "kernels: native" if options.kernels == "native" else None


def _pack(model: PreTrainedModel, shape: KvShape, options: Options) -> NativeWeights:
    if model.device.type != "cpu":
        raise NativeUnavailable(f"the model is on {model.device.type}")
    if shape.block_tokens % 16:
        raise NativeUnavailable(f"blocks of {shape.block_tokens} tokens are no multiple of 16")
    check_supported(model)
    library()
    exact = _FORMATS[model.dtype]
    layers, head = _QUANTIZED[options.quantization] if options.quantization else (exact, exact)
    positions = model.config.get_text_config().max_position_embeddings
    return NativeWeights(model, layers, head, positions)
