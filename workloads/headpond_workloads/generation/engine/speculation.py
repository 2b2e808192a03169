"""Speculative decoding: guess the next tokens, check them all in one forward.

A sequence's last token and its drafts are computed as the rows of one span. The token of
each row is drawn as if there were no drafts: with the random number that belongs to its
position. As long as it equals the draft, the next row was computed after the right token
and counts too. So the output is the same token for token, greedy or sampled, and only the
speed depends on the guesses. (Leviathan et al., arXiv:2211.17192, accept a draft with some
probability instead; that keeps the distribution, but not the output of a seed.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headpond_workloads.generation.engine.sampler import Drawn
from headpond_workloads.generation.engine.sequence import Portion, Slot


class Drafter(Protocol):
    """Guesses how sequences go on."""

    def draft(self, slots: Sequence[Slot], counts: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return at most as many tokens for each slot as `counts` says; none is fine."""
        ...


class PromptLookup:
    """Drafts from the sequence itself."""

    def __init__(self, longest_match: int) -> None:
        """Compare at most `longest_match` of the last tokens."""
        self._longest_match = longest_match

    def draft(self, slots: Sequence[Slot], counts: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return what followed the last tokens where they stood before."""
        return [
            slot.guesses.index.continuation(slot.token_ids, count, self._longest_match)
            for slot, count in zip(slots, counts, strict=True)
        ]


class Speculation:
    """Decides who gets how many drafts, and counts what becomes of them."""

    def __init__(self, drafter: Drafter, *, tokens: int, max_rows: int) -> None:
        """Start with nothing counted.

        Args:
            drafter: Makes the drafts.
            tokens: The most drafts of a sequence in a step.
            max_rows: The most rows of a step with drafts. With more, the step is no longer
                bound by reading the weights, and further rows cost their share.
        """
        self._drafter = drafter
        self._tokens = tokens
        self._max_rows = max_rows
        self.draft_tokens = 0
        self.accepted_tokens = 0

    def propose(self, portions: Sequence[Portion]) -> None:
        """Give drafts to the portions that can use them, when the step has rows to spare."""
        spare = self._max_rows - sum(portion.end - portion.start for portion in portions)
        if spare <= 0:
            return
        open_to = [portion for portion in portions if self._room(portion) > 0]
        chosen: list[Portion] = []
        counts: list[int] = []
        for left, portion in zip(range(len(open_to), 0, -1), open_to, strict=True):
            count = min(self._room(portion), -(-spare // left))
            if count <= 0:
                break
            chosen.append(portion)
            counts.append(count)
            spare -= count
        if chosen:
            drafts = self._drafter.draft([portion.slot for portion in chosen], counts)
            for portion, each in zip(chosen, drafts, strict=True):
                portion.drafts = each

    def accept(self, portion: Portion, drawn: Sequence[Drawn]) -> Sequence[Drawn]:
        """Return the tokens that count of those drawn for a portion's rows.

        A token that could not be drawn (not finite) counts when it is the first.
        """
        drafts = portion.drafts
        if not drafts:
            return drawn
        accepted = 0
        while accepted < len(drafts) and drawn[accepted].token_id == drafts[accepted]:
            accepted += 1
        self.draft_tokens += len(drafts)
        self.accepted_tokens += accepted
        guesses = portion.slot.guesses
        guesses.computed = min(guesses.computed, portion.end + accepted)
        guesses.learn(len(drafts), accepted, portion.slot.output_tokens)
        count = accepted + 1
        if accepted and drawn[accepted].token_id is None:
            count = accepted
        return drawn[:count]

    def _room(self, portion: Portion) -> int:
        """Return how many drafts a portion may get: within its last block, and its bound.

        The block is the one that the loop has reserved; it may reserve no other.
        """
        slot = portion.slot
        if not portion.draws or portion.end - portion.start > 1 or not slot.sampler.speculates:
            return 0
        if slot.output_tokens < max(1, slot.guesses.resume):
            return 0
        return min(
            self._tokens,
            slot.guesses.most,
            slot.table.tokens - portion.end,
            slot.prepared.max_output_tokens - slot.output_tokens - 1,
        )
