"""Drafts by a smaller model, which reads along in a KV cache of its own.

Its cache has as many blocks as the target's, under the same numbers, so a sequence's block
table serves both. What the draft model holds of a block does not have to be right: a bad
draft is refused like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headpond_workloads.generation.engine.forward import CacheMemory, Runner, Span
from headpond_workloads.generation.engine.sampler import Draw, Drawn, sample
from headpond_workloads.generation.engine.sequence import Slot

CATCH_UP_TOKENS = 128
"""The most tokens that the draft model reads at once to catch up with sequences."""


@dataclass(kw_only=True, slots=True)
class _Reading:
    """One sequence, read up to its end and beyond.

    Attributes:
        slot: The sequence.
        count: The most drafts to make.
        due: Tokens to read next, from `slot.guesses.computed` on.
        drafts: Those made so far.
    """

    slot: Slot
    count: int
    due: Sequence[int] = ()
    drafts: list[int] = field(default_factory=list)

    @property
    def drafts_next(self) -> bool:
        """Whether reading what is due leads to a draft."""
        length = len(self.slot.token_ids) + len(self.drafts)
        return self.slot.guesses.computed + len(self.due) == length

    def span(self) -> Span:
        """Return what the model has to compute."""
        slot = self.slot
        return Span(
            token_ids=self.due,
            start=slot.guesses.computed,
            blocks=slot.table.blocks,
            logits=int(self.drafts_next),
        )

    def draw(self) -> Draw:
        """Return how the next draft is drawn: as the target will draw."""
        position = self.slot.output_tokens + len(self.drafts)
        return Draw(state=self.slot.sampler, position=position, logprobs=None)

    def take(self, drawn: Drawn | None) -> None:
        """Take in that what was due is read, and the draft that came of it."""
        self.slot.guesses.computed += len(self.due)
        self.due = ()
        if drawn is None or drawn.token_id is None:
            return
        self.drafts.append(drawn.token_id)
        if len(self.drafts) < self.count:
            self.due = (drawn.token_id,)


class DraftModel:
    """Drafts from a model with the target's vocabulary.

    A draft is drawn with the settings of its sequence and the random number of its
    position, as the target's token will be, which makes the two agree more often. It is the
    memory of its own cache's blocks, and has to be told when they get a new holder.
    """

    def __init__(
        self,
        runner: Runner,
        cache: CacheMemory,
        *,
        blocks: int,
        context_tokens: int,
    ) -> None:
        """Start with an empty cache.

        Args:
            runner: Computes the draft model, over `cache`.
            cache: Has `blocks` blocks.
            blocks: As many as the target's cache has.
            context_tokens: Sequences get no drafts beyond this length.
        """
        self._runner = runner
        self._cache = cache
        self._context_tokens = context_tokens
        self._filled = bytearray(blocks)

    def draft(self, slots: Sequence[Slot], counts: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return what the model thinks comes next; nothing where it has not caught up."""
        readings = [
            _Reading(slot=slot, count=min(count, self._context_tokens + 1 - len(slot.token_ids)))
            for slot, count in zip(slots, counts, strict=True)
        ]
        self._catch_up([reading for reading in readings if reading.count > 0])
        while due := [reading for reading in readings if reading.due]:
            logits = self._runner.forward([reading.span() for reading in due])
            drafting = [reading for reading in due if reading.drafts_next]
            draws = [reading.draw() for reading in drafting]
            drawn = iter(sample(logits, draws))
            for reading in due:
                reading.take(next(drawn) if reading.drafts_next else None)
        return [reading.drafts for reading in readings]

    @property
    def block_tokens(self) -> int:
        """Tokens of a block."""
        return self._cache.block_tokens

    def clear(self, blocks: Sequence[int]) -> None:
        """Forget what lies in blocks that get a new holder."""
        self._cache.clear(blocks)
        for block in blocks:
            self._filled[block] = 0

    def _catch_up(self, readings: Sequence[_Reading]) -> None:
        """Say what each sequence has to read before it can go beyond its end."""
        left = CATCH_UP_TOKENS
        for reading in readings:
            token_ids, guesses = reading.slot.token_ids, reading.slot.guesses
            guesses.computed = min(guesses.computed, len(token_ids) - 1)
            self._skip_filled(reading.slot)
            reading.due = token_ids[guesses.computed :][:left]
            left -= len(reading.due)

    def _skip_filled(self, slot: Slot) -> None:
        """Note the blocks that the sequence filled, and pass over what others filled."""
        guesses, blocks = slot.guesses, slot.table.blocks
        size = self._cache.block_tokens
        for at in range(guesses.filled, guesses.computed // size):
            self._filled[blocks[at]] = 1
        guesses.filled = guesses.computed // size
        while (
            guesses.computed + size < len(slot.token_ids) and self._filled[blocks[guesses.filled]]
        ):
            guesses.filled += 1
            guesses.computed = guesses.filled * size
