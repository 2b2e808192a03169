"""Attention by PyTorch's scaled dot product, over blocks gathered from the cache.

What else is in the step must not change a sequence's rounding. A CPU kernel sums a row in
an order that depends on how many keys the call has, and on whether it has very few rows. So
a row's keys are padded to a number that depends on its position alone (`reach`), and calls
with fewer rows than `LEAST_ROWS` are padded too, which makes them faster, not slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from headpond_workloads.generation.engine.attention import Window
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.kv_cache import KvCache
from headpond_workloads.generation.engine.transfer import integers

LEAST_ROWS = 4
"""Rows below which kernels sum in another order."""

QUERY_ROWS = 16
"""The rows of a chunk are padded to multiples of this."""

REACH = 64
"""Positions in the same segment of this length attend to equally many (padded) keys."""


def reach(tokens: int) -> int:
    """Return how many keys a row at position `tokens - 1` is computed with.

    At most a quarter more than it sees (below 512, at most 63 more).
    """
    step = max(REACH, 1 << (tokens - 1).bit_length() >> 3)
    return -(-tokens // step) * step


@dataclass(kw_only=True, slots=True)
class SdpaPart:
    """Rows of equal reach: one of each of several sequences, or a segment of a chunk.

    Attributes:
        cache: Where keys and values are kept.
        rows: Where the rows lie in the step: `[first, last)`.
        blocks: Block tables, of shape [sequences, blocks of each].
        positions: Position of each row in its sequence, of shape [sequences, rows of each];
            for a chunk, more than it has rows, to which its queries are padded.
        masks: Additive masks by window, made by the first layer that needs one.
    """

    cache: KvCache
    rows: tuple[int, int]
    blocks: Tensor
    positions: Tensor
    masks: dict[Window, Tensor] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, scaling: float | None, window: Window) -> Tensor:
        """Gather the blocks and attend; see `Part`."""
        query = query[:, self.rows[0] : self.rows[1]]
        key, value = self.cache.read(layer, self.blocks)
        mask = self._mask(window, key.shape[2], query.dtype)
        if self.positions.shape[1] == 1:
            return _decode(query.transpose(0, 1), key, value, mask, scaling)
        rows = query.shape[1]
        padded = pad(query, (0, 0, 0, mask.shape[2] - rows)).unsqueeze(0)
        output = scaled_dot_product_attention(
            padded, key, value, attn_mask=mask, scale=scaling, enable_gqa=True
        )
        return output[0, :, :rows].transpose(0, 1)

    def _mask(self, window: Window, keys: int, dtype: torch.dtype) -> Tensor:
        """Return what to add to the scores, of shape [sequences, 1, rows, keys]."""
        if window not in self.masks:
            at = torch.arange(keys, device=self.positions.device)
            distance = self.positions.unsqueeze(-1) - at
            hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
            self.masks[window] = mask.masked_fill_(hidden, float("-inf")).unsqueeze(1)
        return self.masks[window]


class SdpaAttention:
    """Cuts a step where the reach of its rows changes."""

    def __init__(self, cache: KvCache) -> None:
        """Attend over `cache`."""
        self._cache = cache

    def cut(self, packed: Sequence[Span]) -> Iterator[SdpaPart]:
        """Give a part for the decodes of equal reach, and for each segment of a chunk."""
        row = 0
        for reaching, members in groupby(packed, key=_decode_reach):
            together = list(members)
            if reaching is not None:
                yield self._part(row, [(span, span.start, span.end) for span in together])
                row += len(together)
                continue
            for span in together:
                for start, end in _segments(span):
                    yield self._part(row + start - span.start, [(span, start, end)])
                row += len(span.token_ids)

    def decode(self, tables: Tensor, positions: Tensor) -> SdpaPart:
        """Return one part for all sequences, however far they reach."""
        return SdpaPart(
            cache=self._cache,
            rows=(0, len(positions)),
            blocks=tables,
            positions=positions.unsqueeze(1),
        )

    def _part(self, row: int, pieces: Sequence[tuple[Span, int, int]]) -> SdpaPart:
        """Return the call for pieces (a span, from a position to another) of equal reach."""
        cache = self._cache
        rows = pieces[0][2] - pieces[0][1]
        padded = rows if rows == 1 else -(-rows // QUERY_ROWS) * QUERY_ROWS
        blocks = -(-reach(pieces[0][2]) // cache.block_tokens)
        padding = [cache.padding_block] * blocks
        tables = [[*span.blocks, *padding][:blocks] for span, _, _ in pieces]
        positions = [range(start, start + padded) for _, start, _ in pieces]
        return SdpaPart(
            cache=cache,
            rows=(row, row + rows * len(pieces)),
            blocks=integers(tables, cache.device),
            positions=integers(positions, cache.device),
        )


def _decode_reach(span: Span) -> int | None:
    return reach(span.end) if len(span.token_ids) == 1 else None


def _segments(span: Span) -> Iterator[tuple[int, int]]:
    """Cut a chunk where the reach of its positions may change."""
    start = span.start
    while start < span.end:
        end = min(span.end, (start // REACH + 1) * REACH)
        yield start, end
        start = end


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
