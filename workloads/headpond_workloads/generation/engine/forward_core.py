"""Slots advanced by a forward of our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headpond.engine import Quantum
from headpond_workloads.generation.engine.block_manager import BlockManager
from headpond_workloads.generation.engine.core import Advance
from headpond_workloads.generation.engine.forward import Forward
from headpond_workloads.generation.engine.rows import draw, span, split
from headpond_workloads.generation.engine.sampler import Drawn
from headpond_workloads.generation.engine.sequence import Portion, Slot
from headpond_workloads.generation.engine.speculation import Speculation
from headpond_workloads.generation.items import GenerationItem


class ForwardCore:
    """See `Core`."""

    def __init__(
        self, forward: Forward, blocks: BlockManager, speculation: Speculation | None = None
    ) -> None:
        """Put the parts together.

        Args:
            forward: Computes the model, over the memory of the blocks.
            blocks: The KV blocks.
            speculation: Makes drafts; None draws one token a step.
        """
        self._runner = forward.runner
        self._lost = forward.lost
        self._close = forward.close
        self._blocks = blocks
        self._speculation = speculation

    def check(self, item: GenerationItem, prompt_tokens: int) -> None:
        """See `Core`: there is nothing that it can't do."""

    def step(self, quanta: Sequence[Quantum[Slot]]) -> Sequence[Advance]:
        """See `Core`: one forward for all."""
        portions = self._blocks.portions(quanta)
        if self._speculation is not None:
            self._speculation.propose(portions)
        logits = self._runner.forward([span(portion) for portion in portions])
        logits, scores = split(portions, logits)
        drawn = draw(portions, logits)
        # Nothing below fails: up to here no slot has changed, from here on all of them do.
        return [
            Advance(portion=portion, scores=scored, drawn=self._accepted(portion, tokens))
            for portion, scored, tokens in zip(portions, scores, drawn, strict=True)
        ]

    def drop(self, slot: Slot) -> None:
        """See `Core`: its blocks were all that there was of it."""

    def tallies(self) -> Mapping[str, int]:
        """See `Core`."""
        speculation = self._speculation
        return {
            "draft_tokens": speculation.draft_tokens if speculation else 0,
            "accepted_draft_tokens": speculation.accepted_tokens if speculation else 0,
        }

    @property
    def lost(self) -> bool:
        """See `Core`."""
        return self._lost()

    def close(self) -> None:
        """See `Core`."""
        self._close()

    def _accepted(self, portion: Portion, drawn: Sequence[Drawn]) -> Sequence[Drawn]:
        return drawn if self._speculation is None else self._speculation.accept(portion, drawn)
