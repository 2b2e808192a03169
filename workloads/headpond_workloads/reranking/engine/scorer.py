"""What every way of scoring pairs does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headpond_workloads.encoders.tokens import Tokens
from headpond_workloads.reranking.items import PairItem


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """What is left of a pair when it is planned.

    Attributes:
        sequences: What is computed: the pair as one sequence, or the query and the document.
    """

    sequences: tuple[Tokens, ...]

    @property
    def tokens(self) -> int:
        """Tokens of the pair, special ones included."""
        return sum(map(len, self.sequences))

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(map(len, self.sequences), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a model says of a pair; see `Score`."""

    logits: tuple[float, ...]
    scores: tuple[float, ...]


class Scorer(Protocol):
    """A way of scoring: one architecture over an encoder."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of what it gives, in their order."""
        ...

    @property
    def context_tokens(self) -> int:
        """The longest pair that the model takes, special tokens included."""
        ...

    @property
    def max_tokens(self) -> int:
        """The same within the bundle's limits."""
        ...

    def pair(self, item: PairItem) -> Pair:
        """Tokenize and cut a pair.

        Raises:
            InvalidRequest: It is none the model can score.
            ContextLengthExceeded: It is too long, and not to be cut; says both numbers.
        """
        ...

    def score(self, batch: Sequence[Pair]) -> list[Verdict]:
        """Compute a batch.

        Raises:
            EngineFailed: There was not enough memory for it.
        """
        ...
