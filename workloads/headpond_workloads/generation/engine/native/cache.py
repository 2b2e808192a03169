"""The paged KV cache in the native decoder's layout."""

from __future__ import annotations

from collections.abc import Sequence

from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.native.structures import Cache
from headpond_workloads.native.memory import zeros

PIECE_TOKENS = 16


class NativeKvCache:
    """Keys and values of all layers, in blocks; see `attention.hpp` for the layout."""

    def __init__(self, shape: KvShape, blocks: int) -> None:
        """Allocate `blocks` blocks.

        Raises:
            ValueError: A block is no multiple of 16 tokens.
            MemoryError: There is not enough.
        """
        if shape.block_tokens % PIECE_TOKENS:
            raise ValueError(f"blocks of {shape.block_tokens} tokens are no multiple of 16")
        self.block_tokens = shape.block_tokens
        flat = zeros(blocks * shape.block_bytes)
        self._blocks = flat.reshape(shape.layers, blocks, -1)
        self.structure = Cache(
            flat.ctypes.data,
            blocks,
            shape.block_tokens,
            shape.kv_heads,
            shape.head_dim,
            int(shape.dtype == "bfloat16"),
        )

    def clear(self, blocks: Sequence[int]) -> None:
        """Set blocks to zero, for a new holder."""
        if blocks:
            self._blocks[:, list(blocks)] = 0
