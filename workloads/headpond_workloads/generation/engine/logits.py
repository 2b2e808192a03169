"""What is read off a step's logits, wherever the forward left them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from headpond_workloads.generation.items import Sampling

Masks = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Likelihood:
    """How likely one token is, and which are likelier.

    Attributes:
        logprob: The token's log-probability; not finite where the logits are not.
        top: The likeliest tokens with theirs, most likely first.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


class LogProbs(Protocol):
    """The log-probabilities of some rows."""

    def read(self, token_ids: Sequence[int], alternatives: Sequence[int]) -> Sequence[Likelihood]:
        """Return how likely a token of each row is, beside so many of the likeliest."""
        ...


class Logits(Protocol):
    """Float32 logits, of shape [rows, vocabulary]; every row by itself.

    Nothing that is read off a row depends on what other rows there are.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and tokens of the vocabulary."""
        ...

    def values(self) -> NDArray[np.float32]:
        """Return all of them on the host."""
        ...

    def take(self, rows: Sequence[int]) -> Self:
        """Return a copy of some rows."""
        ...

    def likeliest(self) -> tuple[Sequence[int], Sequence[bool]]:
        """Return the likeliest token of each row, and whether its logit is finite.

        Of equals it is the first; a row that holds a NaN is not finite.
        """
        ...

    def log_probs(self, rows: Sequence[int]) -> LogProbs:
        """Return those of some rows as they are now."""
        ...

    def add(self, row: int, token_ids: Sequence[int], amounts: Sequence[float]) -> None:
        """Add to the logits of some tokens, which are different ones."""
        ...

    def penalize(self, row: int, token_ids: Sequence[int], penalty: float) -> None:
        """Make some tokens less likely: divide what is above 0 by `penalty`, multiply the rest."""
        ...

    def forbid(self, rows: Sequence[int], masks: Masks) -> None:
        """Set what is true in each row's mask to minus infinity."""
        ...

    def draw(
        self, rows: Sequence[int], samplings: Sequence[Sampling], uniforms: Sequence[float]
    ) -> Sequence[int]:
        """Draw a token of each of some rows, at its temperature and through its filters.

        Args:
            rows: Which rows; each is finite somewhere.
            samplings: Temperature (above 0) and filters of each.
            uniforms: The random number of each, in [0, 1).
        """
        ...
