"""Drawing tokens natively; a token takes microseconds where tensor operations take a millisecond."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from torch import Tensor

from headpond_workloads.generation.engine.native.library import library
from headpond_workloads.generation.engine.native.structures import Choice
from headpond_workloads.generation.items import Sampling


def draw(logits: Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]) -> list[int]:
    """Draw one token for each row; see `sampling.hpp` for filters and order.

    Args:
        logits: Float32 on the CPU, contiguous, finite somewhere, of shape [rows, vocabulary].
        samplings: Temperature (above 0) and filters of each row.
        uniforms: Each row's random number in [0, 1).
    """
    rows = len(samplings)
    choices = (Choice * rows)(
        *(
            Choice(each.temperature, each.top_p, each.min_p, each.top_k, uniform)
            for each, uniform in zip(samplings, uniforms, strict=True)
        )
    )
    tokens: array[int] = array("i", bytes(4 * rows))
    library().headpond_draw(
        logits.data_ptr(), rows, logits.shape[1], choices, tokens.buffer_info()[0]
    )
    return tokens.tolist()
