"""Attention over the paged KV cache, under the name by which transformers finds it.

A step's tokens of all sequences lie one after the other in a single row of the model's
input, so that every linear layer runs once. Only attention tells them apart: first come
the sequences that decode, grouped so that each group is one call, then the chunks of
prompts, in segments.

What else is in the step must not change a sequence's rounding. A CPU kernel sums a row in
an order that depends on how many keys the call has, and on whether it has very few rows. So
a row's keys are padded to a number that depends on its position alone (`reach`), and calls
with fewer rows than `LEAST_ROWS` are padded too, which makes them faster, not slower.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Unpack, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.utils.generic import TransformersKwargs

from headpond.errors import BundleError
from headpond_workloads.generation.engine.kv_cache import KvCache

NAME = "headpond_paged"

LEAST_ROWS = 4
"""Rows below which kernels sum in another order."""

QUERY_ROWS = 16
"""The rows of a chunk are padded to multiples of this."""

REACH = 64
"""Positions in the same segment of this length attend to equally many (padded) keys."""

Window = int | None
"""Attend to this many of the latest tokens only; None attends to all."""


def reach(tokens: int) -> int:
    """Return how many keys a row at position `tokens - 1` is computed with.

    At most a quarter more than it sees (below 512, at most 63 more).
    """
    step = max(REACH, 1 << (tokens - 1).bit_length() >> 3)
    return -(-tokens // step) * step


@dataclass(kw_only=True, slots=True)
class Part:
    """Rows of a step that attend in one call.

    Attributes:
        rows: Where they lie in the step: `[first, last)`.
        blocks: Block tables, of shape [sequences, blocks of each].
        positions: Position of each row in its sequence, of shape [sequences, rows of each];
            for a chunk, more than it has rows, to which its queries are padded.
        masks: Additive masks by window, made by the first layer that needs one.
    """

    rows: tuple[int, int]
    blocks: Tensor
    positions: Tensor
    masks: dict[Window, Tensor] = field(default_factory=dict)

    def mask(self, window: Window, keys: int, dtype: torch.dtype) -> Tensor:
        """Return what to add to the scores, of shape [sequences, 1, rows, keys]."""
        if window not in self.masks:
            at = torch.arange(keys, device=self.positions.device)
            distance = self.positions.unsqueeze(-1) - at
            hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
            self.masks[window] = mask.masked_fill_(hidden, float("-inf")).unsqueeze(1)
        return self.masks[window]


@dataclass(frozen=True, kw_only=True, slots=True)
class PagedStep:
    """What attention has to know of one step.

    Attributes:
        cache: Where keys and values are kept.
        written: Where the step's own go: flat token positions, of shape [rows].
        parts: Every row of the step, in order.
    """

    cache: KvCache
    written: Tensor
    parts: tuple[Part, ...]


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    paged: PagedStep,
    scaling: float | None = None,
    sliding_window: Window = None,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[Tensor, None]:
    """Store the step's keys and values, and attend part by part.

    Args:
        module: The attention layer; its `layer_idx` names the layer.
        query: Of shape [1, heads, rows, head_dim].
        key: Of shape [1, kv_heads, rows, head_dim].
        value: The same.
        attention_mask: Always None; the parts know who sees what.
        paged: The step, passed through the model's keyword arguments.
        scaling: Factor of the scores.
        sliding_window: See `Window`.
        kwargs: What else the model passes on.

    Returns:
        The outputs, of shape [1, rows, heads, head_dim], and no weights.

    Raises:
        BundleError: The model asks for something that is not done here.
    """
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise BundleError(f"attention with {name} is not supported", param="execution")
    layer = cast("int", module.layer_idx)
    paged.cache.write(layer, paged.written, key[0].transpose(0, 1), value[0].transpose(0, 1))
    outputs = [
        _attend(part, layer, paged.cache, query, scaling, sliding_window) for part in paged.parts
    ]
    return torch.cat(outputs).unsqueeze(0), None


def _attend(
    part: Part,
    layer: int,
    cache: KvCache,
    query: Tensor,
    scaling: float | None,
    window: Window,
) -> Tensor:
    """Return the outputs of one part, of shape [rows, heads, head_dim]."""
    query = query[0, :, part.rows[0] : part.rows[1]]
    key, value = cache.read(layer, part.blocks)
    mask = part.mask(window, key.shape[2], query.dtype)
    if part.positions.shape[1] == 1:
        return _decode(query.transpose(0, 1), key, value, mask, scaling)
    rows = query.shape[1]
    padded = pad(query, (0, 0, 0, mask.shape[2] - rows)).unsqueeze(0)
    output = scaled_dot_product_attention(
        padded, key, value, attn_mask=mask, scale=scaling, enable_gqa=True
    )
    return output[0, :, :rows].transpose(0, 1)


def _decode(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None) -> Tensor:
    """Attend with one row of each sequence, of shape [sequences, heads, head_dim].

    The query heads that share a KV head are laid out as its rows: each key is read once.
    """
    sequences, heads, width = query.shape
    rows = query.reshape(sequences, key.shape[1], -1, width)
    sharing = rows.shape[2]
    padded = pad(rows, (0, 0, 0, LEAST_ROWS - sharing)) if sharing < LEAST_ROWS else rows
    output = scaled_dot_product_attention(padded, key, value, attn_mask=mask, scale=scale)
    return output[:, :, :sharing].reshape(sequences, heads, output.shape[-1])


AttentionInterface.register(NAME, paged_attention)
