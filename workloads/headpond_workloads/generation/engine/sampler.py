"""From logits to the next token of every sequence in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from secrets import randbits

import numpy as np

from headpond.errors import HeadpondError
from headpond_workloads.generation.engine.grammar import masks
from headpond_workloads.generation.engine.logits import Logits
from headpond_workloads.generation.engine.token_gate import TokenGate
from headpond_workloads.generation.items import Sampling

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them would overflow."""

SEED_MASK = (1 << 64) - 1


class SamplerState:
    """What the sampler remembers of one sequence."""

    __slots__ = ("_counts", "_prompt", "_seed", "matcher", "sampling")

    def __init__(
        self, sampling: Sampling, prompt_ids: Sequence[int], matcher: TokenGate | None = None
    ) -> None:
        """Keep the settings, and the tokens only where a penalty needs them.

        Args:
            sampling: How tokens are chosen.
            prompt_ids: What the sequence began with.
            matcher: What its output has to pass, or None.
        """
        self.sampling = sampling
        self.matcher = matcher
        self._seed = (randbits(64) if sampling.seed is None else sampling.seed) & SEED_MASK
        self._prompt = frozenset(prompt_ids) if sampling.repetition_penalty != 1.0 else frozenset()
        self._counts: Counter[int] | None = Counter() if _penalized(sampling) else None

    @property
    def speculates(self) -> bool:
        """Whether rows after drafts can be drawn from before the drafts are accepted.

        Not where the tokens before change how the next one is drawn.
        """
        return self._counts is None and self.matcher is None

    @property
    def complete(self) -> bool:
        """Whether the output is all that it may be."""
        return self.matcher is not None and self.matcher.complete

    @property
    def refusal(self) -> HeadpondError | None:
        """Why no token can be drawn, where that is because of the output's form."""
        return None if self.matcher is None else self.matcher.refusal

    def remember(self, token_id: int) -> None:
        """Count a generated token."""
        if self._counts is not None:
            self._counts[token_id] += 1
        if self.matcher is not None:
            self.matcher.accept(token_id)

    def uniform(self, position: int) -> float:
        """Return this sequence's random number in [0, 1) for one position of its output.

        It depends on the seed and the position alone (Philox is counter-based), so
        neighbours, repeated steps and preemption have no influence.
        """
        return float(np.random.Generator(np.random.Philox(self._seed, counter=position)).random())

    def adjust(self, logits: Logits, row: int) -> None:
        """Apply bias and penalties to one row of logits, in place."""
        sampling = self.sampling
        if sampling.logit_bias:
            logits.add(row, list(sampling.logit_bias), list(sampling.logit_bias.values()))
        if self._counts is None:
            return
        if sampling.repetition_penalty != 1.0:
            seen = [*self._prompt | self._counts.keys()]
            logits.penalize(row, seen, sampling.repetition_penalty)
        if self._counts and (sampling.frequency_penalty or sampling.presence_penalty):
            frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
            amounts = [-(frequency * count + presence) for count in self._counts.values()]
            logits.add(row, list(self._counts), amounts)


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


def sample(logits: Logits, draws: Sequence[Draw]) -> list[Drawn]:
    """Choose one token per row.

    Args:
        logits: A row for each of `draws`; overwritten.
        draws: What is asked for, row by row.
    """
    wanted = [row for row, draw in enumerate(draws) if draw.logprobs is not None]
    log_probs = logits.log_probs(wanted) if wanted else None
    for row, draw in enumerate(draws):
        draw.state.adjust(logits, row)
    broken = _hold(logits, draws)
    likeliest, finite = logits.likeliest()
    token_ids = list(likeliest)
    drawn = [
        row
        for row, draw in enumerate(draws)
        if finite[row] and draw.state.sampling.temperature >= GREEDY_BELOW
    ]
    if drawn:
        samplings = [draws[row].state.sampling for row in drawn]
        uniforms = [draws[row].state.uniform(draws[row].position) for row in drawn]
        for row, token_id in zip(drawn, logits.draw(drawn, samplings, uniforms), strict=True):
            token_ids[row] = token_id
    result = [
        Drawn(token_id=token_id if good and row not in broken else None)
        for row, (token_id, good) in enumerate(zip(token_ids, finite, strict=True))
    ]
    if log_probs is not None:
        counts = [draws[row].logprobs or 0 for row in wanted]
        found = log_probs.read([token_ids[row] for row in wanted], counts)
        for row, each in zip(wanted, found, strict=True):
            if result[row].token_id is not None:
                result[row] = replace(result[row], logprob=each.logprob, top=each.top)
    return result


def _hold(logits: Logits, draws: Sequence[Draw]) -> set[int]:
    """Forbid what can't follow, and return the rows that were not finite before.

    A mask may hide a NaN.
    """
    held = {row: each.state.matcher for row, each in enumerate(draws) if each.state.matcher}
    if not held:
        return set()
    rows = list(held)
    _, finite = logits.take(rows).likeliest()
    logits.forbid(rows, masks(list(held.values()), logits.shape[1]))
    return {row for row, good in zip(rows, finite, strict=True) if not good}


def _penalized(sampling: Sampling) -> bool:
    return bool(
        sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.repetition_penalty != 1.0
    )
