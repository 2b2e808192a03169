"""What the engine needs of a forward: spans in, logits out, over blocks of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The tokens that one sequence computes in a step.

    Attributes:
        token_ids: The tokens, at least one.
        start: The position of the first.
        blocks: The sequence's block table; it reaches past the last token.
        logits: How many of the last tokens' logits are wanted: 1 to draw the next token,
            more to check drafts or to tell how likely the prompt is.
        adapter: The LoRA adapter by number, or None.
    """

    token_ids: Sequence[int]
    start: int
    blocks: Sequence[int]
    logits: int = 0
    adapter: int | None = None

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.start + len(self.token_ids)


class Runner(Protocol):
    """Computes the spans of a step in one forward."""

    def forward(self, spans: Sequence[Span]) -> Tensor:
        """Compute every span and return the logits that are wanted.

        Returns:
            Float32, of shape [logits wanted, vocabulary], in the order of `spans`.
        """
        ...


class CacheMemory(Protocol):
    """The memory of the paged KV cache."""

    @property
    def block_tokens(self) -> int:
        """Tokens in one block."""
        ...

    def clear(self, blocks: Sequence[int]) -> None:
        """Set blocks to zero, for a new holder."""
        ...
