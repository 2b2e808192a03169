"""From logits to the next token of every sequence in a step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import randbits

import numpy as np
import torch
from torch import Tensor

from headpond_workloads.generation.engine.grammar import Matcher
from headpond_workloads.generation.items import Sampling

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them would overflow."""

_HEAD_TOKENS = 512
"""Filters look at this many of the likeliest tokens before they sort all of them."""

_SEED_MASK = (1 << 64) - 1


class SamplerState:
    """What the sampler remembers of one sequence."""

    __slots__ = ("_counts", "_matcher", "_prompt", "_seed", "sampling")

    def __init__(
        self, sampling: Sampling, prompt_ids: Sequence[int], matcher: Matcher | None = None
    ) -> None:
        """Keep the settings, and the tokens only where a penalty needs them.

        Args:
            sampling: How tokens are chosen.
            prompt_ids: What the sequence began with.
            matcher: What its output must be, or None.
        """
        self.sampling = sampling
        self._matcher = matcher
        self._seed = (randbits(64) if sampling.seed is None else sampling.seed) & _SEED_MASK
        self._prompt = frozenset(prompt_ids) if sampling.repetition_penalty != 1.0 else frozenset()
        self._counts: Counter[int] | None = Counter() if _penalized(sampling) else None

    @property
    def speculates(self) -> bool:
        """Whether rows after drafts can be drawn from before the drafts are accepted.

        Not where the tokens before change how the next one is drawn.
        """
        return self._counts is None and self._matcher is None

    @property
    def complete(self) -> bool:
        """Whether the output is all that it may be."""
        return self._matcher is not None and self._matcher.complete

    def remember(self, token_id: int) -> None:
        """Count a generated token."""
        if self._counts is not None:
            self._counts[token_id] += 1
        if self._matcher is not None:
            self._matcher.accept(token_id)

    def uniform(self, position: int) -> float:
        """Return this sequence's random number in [0, 1) for one position of its output.

        It depends on the seed and the position alone (Philox is counter-based), so
        neighbours, repeated steps and preemption have no influence.
        """
        return float(np.random.Generator(np.random.Philox(self._seed, counter=position)).random())

    def adjust(self, logits: Tensor) -> bool:
        """Apply bias, penalties and the grammar to one row of logits, in place.

        Returns:
            Whether any token is left.
        """
        self._adjust(logits)
        return self._matcher is None or self._matcher.mask(logits)

    def _adjust(self, logits: Tensor) -> None:
        sampling = self.sampling
        if sampling.logit_bias:
            _add(logits, list(sampling.logit_bias), list(sampling.logit_bias.values()))
        if self._counts is None:
            return
        if sampling.repetition_penalty != 1.0:
            seen = torch.tensor([*self._prompt | self._counts.keys()], device=logits.device)
            value = logits[seen]
            penalty = sampling.repetition_penalty
            logits[seen] = torch.where(value > 0, value / penalty, value * penalty)
        if self._counts and (sampling.frequency_penalty or sampling.presence_penalty):
            frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
            amounts = [-(frequency * count + presence) for count in self._counts.values()]
            _add(logits, list(self._counts), amounts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """What is asked of the sampler for one row of logits.

    Attributes:
        state: The sequence's settings and memory.
        position: How many tokens it has generated before.
        logprobs: None for none, else how many alternatives to give.
    """

    state: SamplerState
    position: int
    logprobs: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """The next token of one sequence; log-probabilities where they were asked for.

    Attributes:
        token_id: The token, or None where the logits are not finite, or none is allowed.
        logprob: Of the token, before bias, penalties, temperature and filters.
        top: The likeliest tokens with theirs, most likely first.
    """

    token_id: int | None
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()


Drawer = Callable[[Tensor, Sequence[Sampling], Sequence[float]], Sequence[int]]
"""Draws a token for each row of logits, at its temperature and through its filters, at its
random number in [0, 1)."""


@torch.inference_mode()
def sample(logits: Tensor, draws: Sequence[Draw], drawer: Drawer | None = None) -> list[Drawn]:
    """Choose one token per row.

    Args:
        logits: Float32, of shape [len(draws), vocabulary]; overwritten.
        draws: What is asked for, row by row.
        drawer: Draws where the temperature is not 0; `draw_rows` when None.
    """
    finite = logits.amax(dim=-1).isfinite().tolist()  # NaN wins amax, so one pass finds it
    wanted = [row for row, draw in enumerate(draws) if draw.logprobs is not None]
    normalized = logits[wanted].log_softmax(dim=-1) if wanted else logits[:0]
    for row, draw in enumerate(draws):
        finite[row] &= draw.state.adjust(logits[row])
    token_ids: list[int] = logits.argmax(dim=-1).tolist()
    drawn = [
        row
        for row, draw in enumerate(draws)
        if finite[row] and draw.state.sampling.temperature >= GREEDY_BELOW
    ]
    if drawn:
        samplings = [draws[row].state.sampling for row in drawn]
        uniforms = [draws[row].state.uniform(draws[row].position) for row in drawn]
        chosen = logits if len(drawn) == len(draws) else logits[drawn]
        picked = (drawer or draw_rows)(chosen, samplings, uniforms)
        for row, token_id in zip(drawn, picked, strict=True):
            token_ids[row] = token_id
    result = [
        Drawn(token_id=token_id if ok else None)
        for token_id, ok in zip(token_ids, finite, strict=True)
    ]
    for row, values in zip(wanted, normalized, strict=True):
        result[row] = _with_logprobs(result[row], values, draws[row].logprobs or 0)
    return result


def candidates(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return token IDs and probabilities after top-k, top-p and min-p, likeliest first.

    The filters apply in the order of transformers' warpers. The probabilities need not
    sum to 1.

    Args:
        logits: One row, already divided by the temperature.
        sampling: Which filters apply.
    """
    size = logits.shape[-1]
    for count in (min(sampling.top_k or _HEAD_TOKENS, size), size):
        values, token_ids = logits.topk(count)
        whole = values if sampling.top_k else logits
        probabilities = (values - whole.logsumexp(dim=-1)).exp()
        kept = _kept(values, probabilities, sampling)
        if kept < count or sampling.top_k:
            break
    return token_ids[:kept], probabilities[:kept]


def _kept(values: Tensor, probabilities: Tensor, sampling: Sampling) -> int:
    """Return how many of the likeliest tokens top-p and min-p leave."""
    mask = torch.ones_like(values, dtype=torch.bool)
    if sampling.top_p < 1.0:
        before = probabilities.double().cumsum(dim=-1) - probabilities
        mask &= before < sampling.top_p
    if sampling.min_p > 0.0:
        mask &= values >= values[0] + math.log(sampling.min_p)
    return max(1, int(mask.sum()))


def draw_rows(
    logits: Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]
) -> list[int]:
    """Invert each row's cumulative distribution at its random number, on any device.

    The distribution is that of the tokens that the filters leave, in the order of their IDs.
    """
    temperatures = [sampling.temperature for sampling in samplings]
    scaled = logits / torch.tensor(temperatures, device=logits.device).unsqueeze(1)
    plain = [row for row, sampling in enumerate(samplings) if not _filtered(sampling)]
    token_ids = [0] * len(samplings)
    if plain:
        picked = _invert(scaled[plain].softmax(dim=-1), [uniforms[row] for row in plain])
        for row, token_id in zip(plain, picked, strict=True):
            token_ids[row] = token_id
    for row in sorted(set(range(len(samplings))) - set(plain)):
        kept_ids, probabilities = candidates(scaled[row], samplings[row])
        kept_ids, order = kept_ids.sort()
        probabilities = probabilities[order]
        (picked_at,) = _invert(probabilities.unsqueeze(0), [uniforms[row]])
        token_ids[row] = int(kept_ids[picked_at])
    return token_ids


def _invert(probabilities: Tensor, uniforms: Sequence[float]) -> list[int]:
    cumulative = probabilities.double().cumsum(dim=-1)
    points = torch.tensor(uniforms, dtype=torch.float64, device=cumulative.device).unsqueeze(1)
    found = torch.searchsorted(cumulative, points * cumulative[:, -1:], right=True).squeeze(1)
    picked: list[int] = found.clamp_(max=cumulative.shape[-1] - 1).tolist()
    return picked


def _with_logprobs(drawn: Drawn, normalized: Tensor, count: int) -> Drawn:
    if drawn.token_id is None:
        return drawn
    values, token_ids = normalized.topk(min(count, normalized.shape[-1]))
    return Drawn(
        token_id=drawn.token_id,
        logprob=float(normalized[drawn.token_id]),
        top=tuple(zip(token_ids.tolist(), values.tolist(), strict=True)),
    )


def _add(logits: Tensor, token_ids: list[int], amounts: list[float]) -> None:
    at = torch.tensor(token_ids, device=logits.device)
    logits[at] += torch.tensor(amounts, dtype=logits.dtype, device=logits.device)


def _penalized(sampling: Sampling) -> bool:
    return bool(
        sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.repetition_penalty != 1.0
    )


def _filtered(sampling: Sampling) -> bool:
    return bool(sampling.top_k) or sampling.top_p < 1.0 or sampling.min_p > 0.0
