"""The paged KV cache: one tensor, cut into blocks that sequences hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headpond.state import DTYPE_BYTES
from headpond_workloads.generation.engine.transfer import integers


@dataclass(frozen=True, kw_only=True, slots=True)
class KvShape:
    """What one token's keys and values look like in one model.

    Attributes:
        block_tokens: Tokens in one block.
        dtype: The compute dtype by name.
    """

    layers: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    dtype: str

    @classmethod
    def of(cls, model: PreTrainedModel, block_tokens: int) -> KvShape:
        """Read the shape from a model's configuration."""
        config = model.config.get_text_config()
        heads = config.num_attention_heads
        return cls(
            layers=config.num_hidden_layers,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            block_tokens=block_tokens,
            dtype=str(model.dtype).removeprefix("torch."),
        )

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        per_token = self.layers * 2 * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]
        return self.block_tokens * per_token


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
