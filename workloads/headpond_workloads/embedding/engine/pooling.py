"""From the vectors of a text's tokens to one vector, and its length, in float32."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from headpond_workloads.encoders.tokens import Floats


class Pooling(StrEnum):
    """How token vectors become one."""

    CLS = "cls"
    """The first token's."""
    MEAN = "mean"
    MAX = "max"
    MEAN_SQRT_LEN = "mean_sqrt_len"
    """Their sum over the square root of their number."""


def pool(rows: Floats, pooling: Pooling) -> Floats:
    """Return one vector of token vectors, special tokens' among them.

    Args:
        rows: Of shape [tokens, hidden].
        pooling: How.

    Returns:
        Of shape [hidden].
    """
    found: Floats
    if pooling is Pooling.CLS:
        found = rows[0]
    elif pooling is Pooling.MAX:
        found = rows.max(axis=0)
    elif pooling is Pooling.MEAN:
        found = rows.mean(axis=0)
    else:
        found = rows.sum(axis=0) / np.float32(np.sqrt(len(rows)))
    return found


def normalized(vectors: Floats) -> Floats:
    """Return vectors of length 1; one of length 0 stays as it is.

    Args:
        vectors: Of shape [..., dimensions].
    """
    squares = np.square(vectors, dtype=np.float64).sum(axis=-1, keepdims=True)
    lengths = np.sqrt(squares)
    found: Floats = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return found
