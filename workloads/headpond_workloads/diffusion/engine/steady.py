"""Layers whose rows come out the same, bit for bit, whoever else is in the batch.

On a CPU the libraries choose kernels by the number of rows: a convolution of one picture sums
in another order than one of two, a 1x1 convolution changes its blocks up to twelve pictures,
and a product with a few rows, such as that of the time embeddings, up to eight. So 1x1
convolutions are computed as products over all places, few rows are filled up to sixteen, and
nobody is computed alone (`LEAST_ROWS`). All else keeps a row's sums as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

LEAST_ROWS = 2
"""Rows of a forward: one alone is computed twice, since one-row convolutions differ."""

_FULL_ROWS = 16


class SteadyLinear(nn.Linear):
    """A product that is never computed for a few rows only."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's own name
        """Return the product for `[rows, features]` or `[rows, places, features]`."""
        if input.dim() != 2:
            return super().forward(input)
        rows = input.shape[0]
        filled = functional.pad(input, (0, 0, 0, (-rows) % _FULL_ROWS))
        return super().forward(filled)[:rows]


class SteadyPointwise(nn.Conv2d):
    """A 1x1 convolution as a product over all places."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's own name
        """Return `[rows, out_channels, height, width]`."""
        weight = self.weight.flatten(1)
        return functional.linear(input.movedim(1, -1), weight, self.bias).movedim(-1, 1)


def make_steady(network: nn.Module) -> None:
    """Let the layers of a network be steady ones; they keep their weights."""
    for module in network.modules():
        if type(module) is nn.Linear:
            module.__class__ = SteadyLinear
        elif type(module) is nn.Conv2d and _is_pointwise(module):
            module.__class__ = SteadyPointwise


def filled(rows: Tensor) -> Tensor:
    """Return at least `LEAST_ROWS` rows: the first again where there is one."""
    return rows if len(rows) >= LEAST_ROWS else torch.cat([rows] * LEAST_ROWS)


def _is_pointwise(convolution: nn.Conv2d) -> bool:
    plain = convolution.stride == (1, 1) and convolution.padding == (0, 0)
    return convolution.kernel_size == (1, 1) and convolution.groups == 1 and plain
