"""The paged KV cache: one tensor, cut into blocks that sequences hold."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.transfer import integers


class KvCache:
    """Keys and values of every block, and two more blocks behind them that nobody holds.

    Attention multiplies masked positions by zero, so whatever lies in them must be finite:
    blocks are cleared when they change hands, and tables are padded with a block of zeros.
    Rows that pad a step write into the scratch block, which nobody reads.
    """

    def __init__(self, shape: KvShape, blocks: int, device: torch.device) -> None:
        """Allocate `blocks` blocks, and behind them the padding and the scratch block."""
        self.padding_block = blocks
        self.scratch_block = blocks + 1
        self.block_tokens = shape.block_tokens
        self._blocks = torch.zeros(
            (shape.layers, 2, blocks + 2, shape.block_tokens, shape.kv_heads, shape.head_dim),
            dtype=getattr(torch, shape.dtype),
            device=device,
        )
        self._tokens = self._blocks.flatten(2, 3)

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self._blocks.device

    @property
    def stored_blocks(self) -> int:
        """How many blocks there are, those that nobody holds among them."""
        return self._blocks.shape[2]

    def clear(self, blocks: Sequence[int]) -> None:
        """Set blocks to zero, for a new holder."""
        if blocks:
            self._blocks.index_fill_(2, integers(blocks, self.device), 0)

    def write(self, layer: int, at: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store new tokens of one layer.

        Args:
            layer: Which layer.
            at: Flat token positions (block times block size plus offset), of shape [n].
            keys: Of shape [n, kv_heads, head_dim].
            values: The same.
        """
        stored = self._tokens[layer]
        stored[0].index_copy_(0, at, keys)
        stored[1].index_copy_(0, at, values)

    def read(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Gather the keys and values of block tables that are equally long.

        Args:
            layer: Which layer.
            blocks: Of shape [sequences, blocks of each].

        Returns:
            Keys and values, of shape [sequences, kv_heads, tokens, head_dim].
        """
        held = self._blocks[layer]
        return _gather(held[0], blocks), _gather(held[1], blocks)

    def stored(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all blocks as they lie, without a copy.

        Args:
            layer: Which layer.

        Returns:
            Keys and values, of shape [1, kv_heads, tokens of all blocks, head_dim].
        """
        keys, values = self._tokens[layer]
        return keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0)


def _gather(stored: Tensor, blocks: Tensor) -> Tensor:
    sequences, count = blocks.shape
    rows = stored.index_select(0, blocks.flatten())
    return rows.view(sequences, count * stored.shape[1], *stored.shape[2:]).transpose(1, 2)
