"""When each token was said: where the decoder looked for it, as one way through time.

The way is found as OpenAI's code finds it: the scores of the heads that follow the sound are
normalised, smoothed and averaged, and dynamic time warping takes the best path through them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

ROWS_PER_S = 50
"""How many rows the encoder gives for a second of sound."""

_SMOOTHED_OVER = 7

Floats = NDArray[np.float32]


def token_times(scores: Tensor, rows: int) -> list[float]:
    """Return when each token begins, and at last when the text ends, in seconds.

    Args:
        scores: [heads, tokens and the end, rows of the sound].
        rows: How many of the rows hold the utterance; the others are silence after it.
    """
    weights = scores[:, :, :rows].softmax(-1)
    spread, mean = torch.std_mean(weights, dim=1, keepdim=True, correction=0)
    weights = _smoothed((weights - mean) / spread.clamp(min=1e-6))
    way = cheapest_way(-weights.mean(0).numpy())
    return [row / ROWS_PER_S for row in way]


def cheapest_way(costs: Floats) -> list[int]:
    """Return at which column the cheapest way through `costs` first reaches each row.

    It goes from the first cell to the last, by steps down, right, or both.
    """
    total, steps = _totals(costs)
    row, column = total.shape[0] - 2, total.shape[1] - 2
    first = [0] * (row + 1)
    while row >= 0 and column >= 0:
        first[row] = column
        step = steps[row, column]
        row -= step != _RIGHT
        column -= step != _DOWN
    return first


_BOTH, _DOWN, _RIGHT = 0, 1, 2


def _totals(costs: Floats) -> tuple[Floats, NDArray[np.int8]]:
    """Sum costs along the cheapest ways, one diagonal after the other."""
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0.0
    steps = np.zeros((rows, columns), np.int8)
    for diagonal in range(rows + columns - 1):
        row = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        column = diagonal - row
        choices = np.stack([total[row, column], total[row, column + 1], total[row + 1, column]])
        step = choices.argmin(0)
        steps[row, column] = step
        total[row + 1, column + 1] = costs[row, column] + choices[step, np.arange(len(row))]
    return total, steps


def _smoothed(weights: Tensor) -> Tensor:
    """Take the median of each row and its neighbours in time."""
    side = _SMOOTHED_OVER // 2
    if weights.shape[-1] <= side:
        return weights
    around = pad(weights, (side, side), mode="reflect").unfold(-1, _SMOOTHED_OVER, 1)
    return around.median(-1).values
