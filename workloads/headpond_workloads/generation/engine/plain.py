"""What transformers alone computes for the probe."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headpond.errors import BundleError
from headpond_workloads.generation.engine.attention import NAME
from headpond_workloads.generation.engine.probe import probe_sequences

_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")
"""Position schemes that rescale with the longest position of a batch."""


def plain_logits(model: PreTrainedModel) -> Tensor:
    """Return the logits after each of the probe's sequences, of shape [2, vocabulary].

    Raises:
        BundleError: The model can't be computed with paged attention at all.
    """
    config = model.config.get_text_config()
    if getattr(config, "num_attention_heads", None) is None:
        raise _refusal(model, "it has no attention")
    scheme = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if scheme in _BATCH_DEPENDENT_ROPE:
        raise _refusal(model, f"{scheme} positions depend on what else is in the batch")
    return _plain(model, *probe_sequences(config.vocab_size))


def _refusal(model: PreTrainedModel, reason: str) -> BundleError:
    return BundleError(
        f"{type(model).__name__} can't be served: {reason}", param="execution.architecture"
    )


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
    return torch.stack(rows).float().cpu()
