"""A model of transformers over a cache of its own."""

from __future__ import annotations

from transformers import PreTrainedModel

from headpond_workloads.generation.engine.attention import Attention
from headpond_workloads.generation.engine.cuda_graphs import Recorder
from headpond_workloads.generation.engine.flex_attention import FlexAttention
from headpond_workloads.generation.engine.forward import Forward
from headpond_workloads.generation.engine.kv_cache import KvCache
from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.options import AttentionKind
from headpond_workloads.generation.engine.runner import ModelRunner
from headpond_workloads.generation.engine.sdpa_attention import SdpaAttention
from headpond_workloads.generation.engine.static_decode import StaticDecode


def forward_over(
    model: PreTrainedModel,
    shape: KvShape,
    blocks: int,
    *,
    attention: AttentionKind,
    max_blocks: int,
    recorder: Recorder | None = None,
    max_rows: int = 0,
) -> Forward:
    """Give a model a cache, and return what computes with both.

    Args:
        model: Its attention is `paged_attention`.
        shape: Of the keys and values that it computes.
        blocks: Of the cache.
        attention: How to attend.
        max_blocks: The most blocks that one sequence has.
        recorder: Records steps of decoding, of at most `max_rows` sequences; None computes
            each anew.
        max_rows: See `recorder`.
    """
    cache = KvCache(shape, blocks, model.device)
    over: Attention = SdpaAttention(cache)
    if attention == "flex":
        over = FlexAttention(cache, max_blocks)
    decode = None
    if recorder is not None:
        decode = StaticDecode(
            model, cache, over, recorder, max_rows=max_rows, max_blocks=max_blocks
        )
    return Forward(runner=ModelRunner(model, cache, over, decode), cache=cache)
