"""Drawing tokens from logits through temperature and filters, on any device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from headpond_workloads.generation.items import Sampling

_HEADS = (512, 4096)
"""Filters look at this many of the likeliest tokens before they sort all of them."""


def draw_rows(
    logits: Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]
) -> list[int]:
    """Invert each row's cumulative distribution at its random number, on any device.

    The distribution is that of the tokens that the filters leave, in the order of their IDs.
    On a CPU rows go one by one, within its cache; elsewhere all at once.
    """
    at_once = 1 if logits.device.type == "cpu" else len(samplings)
    token_ids = [0] * len(samplings)
    for filtered in (False, True):
        rows = [row for row, each in enumerate(samplings) if _filtered(each) is filtered]
        for start in range(0, len(rows), at_once):
            group = rows[start : start + at_once]
            chosen, points = [samplings[row] for row in group], [uniforms[row] for row in group]
            temperatures = _column([each.temperature for each in chosen], logits)
            scaled = logits[group] / temperatures.float()
            picked = _draw_filtered(scaled, chosen, points) if filtered else _draw(scaled, points)
            for row, token_id in zip(group, picked, strict=True):
                token_ids[row] = token_id
    return token_ids


def _draw(scaled: Tensor, uniforms: Sequence[float]) -> list[int]:
    picked: list[int] = _invert(scaled.softmax(dim=-1), uniforms).tolist()
    return picked


def _draw_filtered(
    scaled: Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]
) -> list[int]:
    token_ids = [0] * len(samplings)
    for rows, kept_ids, probabilities in candidates(scaled, samplings):
        by_id, order = kept_ids.sort()
        at = _invert(probabilities.gather(1, order), [uniforms[row] for row in rows])
        picked = by_id.gather(1, at.unsqueeze(1)).squeeze(1).tolist()
        for row, token_id in zip(rows, picked, strict=True):
            token_ids[row] = token_id
    return token_ids


def candidates(
    logits: Tensor, samplings: Sequence[Sampling]
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Give token IDs and probabilities after top-k, top-p and min-p, group by group of rows.

    The filters apply in the order of transformers' warpers; of equals, those with the lowest
    IDs are kept. Which rows are together has no influence on any of them. Probabilities of
    tokens that are left out are 0; the others need not sum to 1.

    Args:
        logits: Already divided by the temperature, of shape [len(samplings), vocabulary].
        samplings: Which filters apply.
    """
    size = logits.shape[-1]
    left = list(range(len(samplings)))
    for count in (*(head for head in _HEADS if head < size), size):
        if not left:
            return
        chosen = [samplings[row] for row in left]
        token_ids, probabilities, enough = _head(logits[left], chosen, count)
        done = [at for at, each in enumerate(enough) if each]
        if done:
            yield [left[at] for at in done], token_ids[done], probabilities[done]
        left = [row for row, each in zip(left, enough, strict=True) if not each]


def _head(
    logits: Tensor, samplings: Sequence[Sampling], count: int
) -> tuple[Tensor, Tensor, list[bool]]:
    """Apply filters to the `count` likeliest tokens; says for which rows these are enough."""
    everything = count == logits.shape[-1]
    if everything:
        values, token_ids = logits.sort(dim=-1, descending=True, stable=True)
    else:
        by_id = logits.topk(count, sorted=False).indices.sort(dim=-1).values
        values, order = logits.gather(1, by_id).sort(dim=-1, descending=True, stable=True)
        token_ids = by_id.gather(1, order)
    values = values - values[:, :1]
    tops = _column([each.top_k or count for each in samplings], values)
    kept = (torch.arange(count, device=values.device) < tops) & (values > -math.inf)
    probabilities = values.double().exp().where(kept, 0.0)
    cumulative = probabilities.cumsum(dim=-1)
    shares = _column([each.top_p if each.top_p < 1.0 else math.inf for each in samplings], values)
    kept &= cumulative - probabilities < shares * _whole(logits, cumulative, samplings)
    floors = _column([math.log(each.min_p or 1e-300) for each in samplings], values)
    kept &= values >= floors
    kept[:, 0] = True
    last = values.where(kept, math.inf).amin(dim=-1)
    enough = [
        everything or (each.top_k <= count and beyond)
        for each, beyond in zip(samplings, (last > values[:, -1]).tolist(), strict=True)
    ]
    return token_ids, probabilities.where(kept, 0.0), enough


def _whole(logits: Tensor, cumulative: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """Return what top-p is a share of, relative to the likeliest: all, or what top-k leaves."""
    if all(each.top_k for each in samplings):
        return cumulative[:, -1:]
    cut = _column([float(each.top_k > 0) for each in samplings], logits) > 0
    everything = (-logits.log_softmax(dim=-1).amax(dim=-1, keepdim=True)).double().exp()
    return cumulative[:, -1:].where(cut, everything)


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device).unsqueeze(1)


def _invert(probabilities: Tensor, uniforms: Sequence[float]) -> Tensor:
    """Return for each row where its cumulative distribution passes its random number."""
    cumulative = probabilities.double().cumsum(dim=-1)
    whole = cumulative[:, -1:]
    points = torch.tensor(uniforms, dtype=torch.float64, device=cumulative.device).unsqueeze(1)
    points = torch.minimum(points * whole, whole.nextafter(torch.zeros_like(whole)))
    return torch.searchsorted(cumulative, points, right=True).squeeze(1)


def _filtered(sampling: Sampling) -> bool:
    return bool(sampling.top_k) or sampling.top_p < 1.0 or sampling.min_p > 0.0
