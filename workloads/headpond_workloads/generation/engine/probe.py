"""Whether a loaded model works with paged attention, tried before it serves.

The seam to transformers is an attention function by name. A model that mixes tokens
elsewhere too (recurrent or convolutional layers), or whose attention needs what ours does
not do, would compute nonsense without an error. So two short sequences are computed packed,
and again apart by transformers' own attention.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headpond.errors import BundleError
from headpond_workloads.generation.engine.attention import NAME
from headpond_workloads.generation.engine.kv_cache import KvCache, KvShape
from headpond_workloads.generation.engine.runner import ModelRunner, Span

_BLOCK_TOKENS = 16
_TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.2, torch.float16: 0.1}
"""Largest error of the logits relative to their spread (both root mean square).

Rounding stays well below, and a token that sees a wrong one is near 1.
"""

_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")
"""Position schemes that rescale with the longest position of a batch."""


def check_attention(model: PreTrainedModel) -> None:
    """Compare packed, chunked and paged with plain.

    Raises:
        BundleError: They differ, or the model can't be computed with paged attention.
    """
    config = model.config.get_text_config()
    if getattr(config, "num_attention_heads", None) is None:
        raise _refusal(model, "it has no attention")
    scheme = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if scheme in _BATCH_DEPENDENT_ROPE:
        raise _refusal(model, f"{scheme} positions depend on what else is in the batch")
    generator = torch.Generator().manual_seed(0)
    token_ids = torch.randint(config.vocab_size, (22,), generator=generator).tolist()
    first, second = token_ids[:9], token_ids[9:]
    paged = _paged(model, first, second)
    plain = _plain(model, first, second)
    error = float((paged - plain).std() / plain.std())
    if not error < _TOLERANCE[model.dtype]:
        raise _refusal(model, f"paged attention changes its logits (relative error {error:.3f})")


def _refusal(model: PreTrainedModel, reason: str) -> BundleError:
    return BundleError(
        f"{type(model).__name__} can't be served: {reason}", param="execution.architecture"
    )


def _paged(model: PreTrainedModel, first: list[int], second: list[int]) -> Tensor:
    """Compute two sequences in packed steps: one at once, one in a chunk and a decode."""
    runner = ModelRunner(model, KvCache(KvShape.of(model, _BLOCK_TOKENS), 2, model.device))
    chunk = Span(token_ids=second[:-1], start=0, blocks=[1], logits=0)
    last = Span(token_ids=second[-1:], start=len(second) - 1, blocks=[1], logits=1)
    whole = Span(token_ids=first, start=0, blocks=[0], logits=1)
    return torch.cat([runner.forward([whole, chunk]), runner.forward([last])])


@torch.inference_mode()
def _plain(model: PreTrainedModel, first: list[int], second: list[int]) -> Tensor:
    model.set_attn_implementation("eager")
    try:
        rows = [
            model(input_ids=torch.tensor([each], device=model.device), use_cache=False).logits[
                0, -1
            ]
            for each in (first, second)
        ]
    finally:
        model.set_attn_implementation(NAME)
    return torch.stack(rows).float()
