"""Token IDs of one sequence, as encoders take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tokens:
    """One sequence, special tokens included.

    Attributes:
        token_ids: Of shape [tokens]; all of the model's vocabulary.
        type_ids: Which text each token is of; of the same shape.
    """

    token_ids: Ints
    type_ids: Ints

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.token_ids)


def starts(sequences: Sequence[Tokens]) -> Ints:
    """Return the row at which each sequence begins when they lie one after the other.

    Returns:
        Of shape [sequences + 1]; the last is the number of all rows.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int32, count=len(sequences))
    return np.concatenate((np.zeros(1, dtype=np.int32), np.cumsum(lengths, dtype=np.int32)))
