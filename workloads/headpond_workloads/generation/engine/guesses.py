"""How well the drafts for one sequence do, and how many to make therefore."""

from __future__ import annotations

from dataclasses import dataclass, field

from headpond_workloads.generation.engine.lookup import TokenIndex

_SMOOTHING = 0.125
_HOPE = 1.0
"""What is assumed before the first step: a draft accepted in each."""

_POOR = 0.25
"""Drafts accepted in a step, on average, below which drafting pauses: the rows that check
them are cheap but not free."""

_FIRST_PAUSE_TOKENS = 16
_LONGEST_PAUSE_TOKENS = 256


@dataclass(kw_only=True, slots=True)
class Guesses:
    """What speculation remembers of one sequence.

    Attributes:
        index: Where its tokens stand, for prompt lookup.
        computed: Tokens whose keys and values a draft model holds.
        filled: Of its blocks, how many the draft model knows to be filled.
        most: Drafts to make in the next step; adapts to how many are accepted.
        accepted: How many a step accepts, on average.
        resume: The number of output tokens at which drafting goes on.
        pause: How long the next pause is.
    """

    index: TokenIndex = field(default_factory=TokenIndex)
    computed: int = 0
    filled: int = 0
    most: int = 4
    accepted: float = _HOPE
    resume: int = 0
    pause: int = _FIRST_PAUSE_TOKENS

    def learn(self, drafted: int, accepted: int, output_tokens: int) -> None:
        """Take in how many drafts of a step were accepted."""
        self.most = max(self.most, 2 * drafted) if accepted == drafted else accepted + 1
        self.accepted += _SMOOTHING * (accepted - self.accepted)
        if self.accepted < _POOR:
            self.resume = output_tokens + self.pause
            self.pause = min(2 * self.pause, _LONGEST_PAUSE_TOKENS)
            self.accepted = 2 * _POOR
        elif self.accepted > _HOPE:
            self.pause = _FIRST_PAUSE_TOKENS

    def rewind(self) -> None:
        """Forget what a draft model holds; the sequence lost its blocks."""
        self.computed = self.filled = 0
