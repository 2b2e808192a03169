"""Whether a forward computes what the model means, tried before it serves.

The seam to transformers is an attention function by name, and the native forward is a
reading of some architectures. A model that mixes tokens elsewhere too (recurrent or
convolutional layers), or needs what a forward does not do, would give nonsense without an
error. So two short sequences are computed packed, and again apart by transformers alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headpond.errors import BundleError
from headpond_workloads.generation.engine.attention import NAME
from headpond_workloads.generation.engine.forward import Runner, Span

_TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.2, torch.float16: 0.1}
"""Largest error of the logits relative to their spread (both root mean square).

Rounding stays well below, and a token that sees a wrong one is near 1.
"""

_QUANTIZED_TOLERANCE = 1.0
"""Nonsense is at 1.4, the spread of the difference of two unrelated logits."""

_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")
"""Position schemes that rescale with the longest position of a batch."""


def plain_logits(model: PreTrainedModel) -> Tensor:
    """Return what transformers computes for the probe, of shape [2, vocabulary].

    Raises:
        BundleError: The model can't be computed with paged attention at all.
    """
    config = model.config.get_text_config()
    if getattr(config, "num_attention_heads", None) is None:
        raise _refusal(model, "it has no attention")
    scheme = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if scheme in _BATCH_DEPENDENT_ROPE:
        raise _refusal(model, f"{scheme} positions depend on what else is in the batch")
    return _plain(model, *_sequences(model))


def check_forward(
    model: PreTrainedModel, runner: Runner, plain: Tensor, *, quantized: bool = False
) -> None:
    """Compare packed, chunked and paged with plain.

    Args:
        model: What is computed.
        runner: Computes it over a cache of which the blocks 0 and 1 are free.
        plain: What `plain_logits` said.
        quantized: Whether weights were rounded, so that only nonsense is refused.

    Raises:
        BundleError: They differ.
    """
    paged = _paged(runner, *_sequences(model))
    error = float((paged - plain).std() / plain.std())
    if not error < (_QUANTIZED_TOLERANCE if quantized else _TOLERANCE[model.dtype]):
        raise _refusal(model, f"the paged forward changes its logits (relative error {error:.3f})")


def _sequences(model: PreTrainedModel) -> tuple[list[int], list[int]]:
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.config.get_text_config().vocab_size
    token_ids = torch.randint(vocabulary, (22,), generator=generator).tolist()
    return token_ids[:9], token_ids[9:]


def _refusal(model: PreTrainedModel, reason: str) -> BundleError:
    return BundleError(
        f"{type(model).__name__} can't be served: {reason}", param="execution.architecture"
    )


def _paged(runner: Runner, first: list[int], second: list[int]) -> Tensor:
    """Compute two sequences in packed steps: one at once, one in a chunk and a decode."""
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
