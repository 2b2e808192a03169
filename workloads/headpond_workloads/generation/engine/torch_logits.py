"""Logits as a tensor, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headpond_workloads.generation.engine.drawing import draw_rows
from headpond_workloads.generation.engine.logits import Likelihood, Masks
from headpond_workloads.generation.items import Sampling


class TorchLogits:
    """See `Logits`; reads of a step wait for a GPU once each."""

    def __init__(self, rows: Tensor) -> None:
        """Take over float32 logits of shape [rows, vocabulary]."""
        self._rows = rows

    @property
    def shape(self) -> tuple[int, int]:
        """See `Logits`."""
        rows, tokens = self._rows.shape
        return rows, tokens

    def values(self) -> NDArray[np.float32]:
        """See `Logits`."""
        found: NDArray[np.float32] = self._rows.cpu().numpy()
        return found

    @torch.inference_mode()
    def take(self, rows: Sequence[int]) -> TorchLogits:
        """See `Logits`."""
        return TorchLogits(self._rows[list(rows)])

    @torch.inference_mode()
    def likeliest(self) -> tuple[Sequence[int], Sequence[bool]]:
        """See `Logits`."""
        greatest, token_ids = self._rows.max(dim=-1)  # NaN wins, so one pass finds it
        chosen, finite = torch.stack((token_ids, greatest.isfinite().long())).tolist()
        return chosen, list(map(bool, finite))

    @torch.inference_mode()
    def log_probs(self, rows: Sequence[int]) -> TorchLogProbs:
        """See `Logits`."""
        return TorchLogProbs(self._rows[list(rows)].log_softmax(dim=-1))

    @torch.inference_mode()
    def add(self, row: int, token_ids: Sequence[int], amounts: Sequence[float]) -> None:
        """See `Logits`."""
        values = torch.tensor(amounts, dtype=self._rows.dtype, device=self._rows.device)
        self._rows[row, self._places(token_ids)] += values

    @torch.inference_mode()
    def penalize(self, row: int, token_ids: Sequence[int], penalty: float) -> None:
        """See `Logits`."""
        at = self._places(token_ids)
        value = self._rows[row, at]
        self._rows[row, at] = torch.where(value > 0, value / penalty, value * penalty)

    @torch.inference_mode()
    def forbid(self, rows: Sequence[int], masks: Masks) -> None:
        """See `Logits`."""
        there = torch.from_numpy(masks).to(self._rows.device)
        for row, each in zip(rows, there, strict=True):
            self._rows[row].masked_fill_(each, float("-inf"))

    @torch.inference_mode()
    def draw(
        self, rows: Sequence[int], samplings: Sequence[Sampling], uniforms: Sequence[float]
    ) -> Sequence[int]:
        """See `Logits`."""
        chosen = self._rows if len(rows) == len(self._rows) else self._rows[list(rows)]
        return draw_rows(chosen, samplings, uniforms)

    def _places(self, token_ids: Sequence[int]) -> Tensor:
        return torch.tensor(token_ids, device=self._rows.device)


class TorchLogProbs:
    """See `LogProbs`."""

    def __init__(self, rows: Tensor) -> None:
        """Keep log-probabilities of shape [rows, vocabulary]."""
        self._rows = rows

    @torch.inference_mode()
    def read(self, token_ids: Sequence[int], alternatives: Sequence[int]) -> Sequence[Likelihood]:
        """See `LogProbs`."""
        given = torch.tensor(token_ids, device=self._rows.device).unsqueeze(1)
        logprobs: list[float] = self._rows.gather(1, given).squeeze(1).tolist()
        most = min(max(alternatives), self._rows.shape[-1])
        values, likeliest = self._rows.topk(most, dim=-1)
        tops = zip(likeliest.tolist(), values.tolist(), alternatives, strict=True)
        return [
            Likelihood(logprob=logprob, top=tuple(zip(ids[:count], found[:count], strict=True)))
            for logprob, (ids, found, count) in zip(logprobs, tops, strict=True)
        ]
