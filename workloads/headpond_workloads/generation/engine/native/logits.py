"""Logits that the native decoder computed; a token is drawn in microseconds."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headpond_workloads.generation.engine.logits import Likelihood, Masks
from headpond_workloads.generation.engine.native.library import library
from headpond_workloads.generation.engine.native.structures import Choice
from headpond_workloads.generation.items import Sampling

Rows = NDArray[np.float32]


class NativeLogits:
    """See `Logits`."""

    def __init__(self, rows: Rows) -> None:
        """Take over logits of shape [rows, vocabulary], contiguous."""
        self._rows = rows

    @property
    def shape(self) -> tuple[int, int]:
        """See `Logits`."""
        rows, tokens = self._rows.shape
        return rows, tokens

    def values(self) -> Rows:
        """See `Logits`."""
        return self._rows

    def take(self, rows: Sequence[int]) -> NativeLogits:
        """See `Logits`."""
        return NativeLogits(self._rows[list(rows)])

    def likeliest(self) -> tuple[Sequence[int], Sequence[bool]]:
        """See `Logits`."""
        token_ids = self._rows.argmax(axis=1)  # of a row with a NaN, it is the NaN's place
        greatest = np.take_along_axis(self._rows, token_ids[:, None], axis=1)[:, 0]
        return token_ids.tolist(), np.isfinite(greatest).tolist()

    def log_probs(self, rows: Sequence[int]) -> NativeLogProbs:
        """See `Logits`."""
        return NativeLogProbs([_normalized(self._rows[row]) for row in rows])

    def add(self, row: int, token_ids: Sequence[int], amounts: Sequence[float]) -> None:
        """See `Logits`."""
        self._rows[row, list(token_ids)] += np.array(amounts, dtype=np.float32)

    def penalize(self, row: int, token_ids: Sequence[int], penalty: float) -> None:
        """See `Logits`."""
        at, factor = list(token_ids), np.float32(penalty)
        value = self._rows[row, at]
        self._rows[row, at] = np.where(value > 0, value / factor, value * factor)

    def forbid(self, rows: Sequence[int], masks: Masks) -> None:
        """See `Logits`."""
        for row, each in zip(rows, masks, strict=True):
            np.copyto(self._rows[row], np.float32("-inf"), where=each)

    def draw(
        self, rows: Sequence[int], samplings: Sequence[Sampling], uniforms: Sequence[float]
    ) -> Sequence[int]:
        """See `Logits`, and `sampling.hpp` for filters and order."""
        chosen = self._rows if len(rows) == len(self._rows) else self._rows[list(rows)]
        choices = (Choice * len(rows))(
            *(
                Choice(each.temperature, each.top_p, each.min_p, each.top_k, uniform)
                for each, uniform in zip(samplings, uniforms, strict=True)
            )
        )
        tokens: array[int] = array("i", bytes(4 * len(rows)))
        library().headpond_draw(
            chosen.ctypes.data, len(rows), chosen.shape[1], choices, tokens.buffer_info()[0]
        )
        return tokens.tolist()


class NativeLogProbs:
    """See `LogProbs`."""

    def __init__(self, rows: Sequence[Rows]) -> None:
        """Keep the log-probabilities of each row."""
        self._rows = rows

    def read(self, token_ids: Sequence[int], alternatives: Sequence[int]) -> Sequence[Likelihood]:
        """See `LogProbs`."""
        return [
            Likelihood(logprob=float(row[token_id]), top=_likeliest(row, count))
            for row, token_id, count in zip(self._rows, token_ids, alternatives, strict=True)
        ]


def _normalized(row: Rows) -> Rows:
    """Return log-probabilities; the sum is in float64, in an order of the row's own."""
    with np.errstate(invalid="ignore"):  # NaN and infinity give NaN, which is told of
        shifted = row - row.max()
        found: Rows = shifted - np.float32(np.log(np.exp(shifted).sum(dtype=np.float64)))
    return found


def _likeliest(row: Rows, count: int) -> tuple[tuple[int, float], ...]:
    """Return the likeliest tokens, most likely first; of equals the one of the lowest ID."""
    count = min(count, len(row))
    if not count:
        return ()
    least = np.partition(row, len(row) - count)[len(row) - count]
    found = np.flatnonzero(row >= least)
    first = found[np.argsort(-row[found], kind="stable")][:count]
    return tuple(zip(first.tolist(), row[first].tolist(), strict=True))
