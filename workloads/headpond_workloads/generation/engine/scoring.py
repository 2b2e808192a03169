"""Log-probabilities of tokens that are given: those of a prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from headpond_workloads.generation.engine.sampler import Drawn


@torch.inference_mode()
def score(logits: Tensor, token_ids: Sequence[int], alternatives: int) -> list[Drawn]:
    """Say how likely given tokens were, each after those before it.

    Args:
        logits: Float32, of shape [len(token_ids), vocabulary].
        token_ids: The token that came in each row's place.
        alternatives: How many of the likeliest tokens to give beside it.

    Returns:
        An entry for each token; its `token_id` is None where the logits are not finite.
    """
    normalized = logits.log_softmax(dim=-1)
    given = torch.tensor(token_ids, device=logits.device).unsqueeze(1)
    logprobs: list[float] = normalized.gather(1, given).squeeze(1).tolist()
    values, likeliest = normalized.topk(min(alternatives, normalized.shape[-1]), dim=-1)
    tops = zip(likeliest.tolist(), values.tolist(), strict=True)
    return [
        Drawn(
            token_id=token_id if math.isfinite(logprob) else None,
            logprob=logprob,
            top=tuple(zip(*top, strict=True)),
        )
        for token_id, logprob, top in zip(token_ids, logprobs, tops, strict=True)
    ]
