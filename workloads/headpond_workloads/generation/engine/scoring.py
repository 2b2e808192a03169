"""Log-probabilities of tokens that are given: those of a prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headpond_workloads.generation.engine.logits import Logits
from headpond_workloads.generation.engine.sampler import Drawn


def score(logits: Logits, token_ids: Sequence[int], alternatives: int) -> list[Drawn]:
    """Say how likely given tokens were, each after those before it.

    Args:
        logits: A row for each of `token_ids`.
        token_ids: The token that came in each row's place.
        alternatives: How many of the likeliest tokens to give beside it.

    Returns:
        An entry for each token; its `token_id` is None where the logits are not finite.
    """
    count = len(token_ids)
    found = logits.log_probs(range(count)).read(token_ids, [alternatives] * count)
    return [
        Drawn(
            token_id=token_id if math.isfinite(each.logprob) else None,
            logprob=each.logprob,
            top=each.top,
        )
        for token_id, each in zip(token_ids, found, strict=True)
    ]
