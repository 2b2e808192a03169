"""What every text encoder does, whatever computes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headpond_workloads.encoders.tokens import Floats, Tokens


class Encoder(Protocol):
    """From token IDs to vectors, several sequences at once."""

    @property
    def lanes(self) -> int:
        """How many threads that call it at once keep the device busy."""
        ...

    @property
    def express_lanes(self) -> int:
        """How many more may call it at once."""
        ...

    @property
    def weight_bytes(self) -> int:
        """What its weights take."""
        ...

    @property
    def batch_tokens(self) -> int:
        """How many tokens a batch should have so that no more would make it faster."""
        ...

    @property
    def padded_tokens(self) -> int:
        """How many tokens of padding were computed since the start; only ever grows."""
        ...

    def key(self, tokens: int) -> tuple[int, ...]:
        """Return what must be equal to share a batch, for a sequence of so many tokens."""
        ...

    def encode(self, sequences: Sequence[Tokens], *, first_only: bool = False) -> Floats:
        """Compute a batch.

        Args:
            sequences: At least one, each of at least one token.
            first_only: Whether only the first token of each is wanted.

        Returns:
            A vector for each token, those of a sequence one after the other, without padding:
            of shape [all tokens, hidden], or [sequences, hidden] with `first_only`.

        Raises:
            EngineFailed: There was not enough memory.
        """
        ...
