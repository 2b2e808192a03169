"""One sequence in progress: its tokens, its blocks, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headpond_workloads.generation.engine.blocks import BlockTable
from headpond_workloads.generation.engine.sampler import SamplerState
from headpond_workloads.generation.engine.text import TextStream
from headpond_workloads.generation.items import GenerationItem


class Status(StrEnum):
    """Where a sequence stands."""

    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """An item after planning: its token IDs and the most it may generate."""

    item: GenerationItem
    token_ids: tuple[int, ...]
    max_output_tokens: int


@dataclass(kw_only=True, slots=True)
class Slot:
    """A started sequence. The engine alone writes to it, between two forwards.

    Attributes:
        prepared: What was planned.
        token_ids: Prompt and output so far; the engine appends what the sampler draws.
        table: The KV blocks; the first `computed` tokens lie in them.
        sampler: What the sampler remembers of this sequence.
        text: What may be shown of the output.
        computed: Tokens whose keys and values are held; a forward adds to it, preemption
            sets it to 0.
        status: Set by the engine when the first token and the last token come.
    """

    prepared: Prepared
    token_ids: list[int]
    table: BlockTable
    sampler: SamplerState
    text: TextStream
    computed: int = 0
    status: Status = field(default=Status.PREFILL)

    @property
    def prompt_tokens(self) -> int:
        """How many of the tokens are the prompt."""
        return len(self.prepared.token_ids)

    @property
    def output_tokens(self) -> int:
        """How many tokens were generated."""
        return len(self.token_ids) - self.prompt_tokens

    def due(self, units: int) -> int:
        """Return how many tokens a quantum of `units` computes.

        A preempted sequence first computes again what it held, and no more, so that its
        next step goes on exactly where it was.
        """
        held_before = len(self.token_ids) - 1 if self.output_tokens else len(self.token_ids)
        missing = held_before - self.computed
        return min(units, missing) if missing > 0 else 1
