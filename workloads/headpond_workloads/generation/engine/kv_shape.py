"""What keys and values look like in one model."""

from __future__ import annotations

from dataclasses import dataclass

from headpond.state import DTYPE_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class KvShape:
    """What one token's keys and values look like.

    Attributes:
        block_tokens: Tokens in one block.
        dtype: The compute dtype by name.
    """

    layers: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    dtype: str

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        per_token = self.layers * 2 * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]
        return self.block_tokens * per_token
