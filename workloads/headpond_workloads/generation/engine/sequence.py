"""One sequence in progress: its tokens, its blocks, and how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headpond_workloads.generation.engine.blocks import BlockTable
from headpond_workloads.generation.engine.guesses import Guesses
from headpond_workloads.generation.engine.prefix import Chain
from headpond_workloads.generation.engine.reader import Reader
from headpond_workloads.generation.engine.sampler import SamplerState
from headpond_workloads.generation.engine.text import TextStream
from headpond_workloads.generation.engine.token_gate import TokenGate
from headpond_workloads.generation.items import GenerationItem

SCORED_TOKENS = 64
"""A prompt whose log-probabilities are wanted goes on by at most this in a step: each row
of logits has the size of the vocabulary."""


class Status(StrEnum):
    """Where a sequence stands."""

    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """An item after planning: its token IDs and the most it may generate.

    Attributes:
        names: The names of the prompt's blocks, or None without a prefix cache.
        adapter: The number of the LoRA adapter, or None.
        matcher: At the start of what the output has to pass, or None.
    """

    item: GenerationItem
    token_ids: tuple[int, ...]
    max_output_tokens: int
    names: Chain | None = None
    adapter: int | None = None
    matcher: TokenGate | None = None

    @property
    def returns_prompt(self) -> bool:
        """Whether the prompt's tokens are given back."""
        return self.item.echo or self.item.prompt_logprobs is not None


@dataclass(kw_only=True, slots=True)
class Slot:
    """A started sequence. The engine alone writes to it, between two forwards.

    Attributes:
        prepared: What was planned.
        token_ids: Prompt and output so far; the engine appends what the sampler draws.
        table: The KV blocks; the first `computed` tokens lie in them.
        sampler: What the sampler remembers of this sequence.
        text: What may be shown of the output.
        reader: Tells reasoning and calls of tools from it; None where all is said.
        reasoning_tokens: Tokens generated while it reasoned.
        prompt_tokens: How many of the tokens are the prompt.
        computed: Tokens whose keys and values are held; a forward adds to it, and so do
            blocks found in the prefix cache; preemption sets it to 0.
        told: The part of `computed` that the loop knows of.
        skipped: Tokens found in the prefix cache that the loop does not know of.
        cached_tokens: Prompt tokens that were held before the sequence came.
        preempted: Whether it ever lost its blocks.
        returned: Prompt tokens given back to the caller so far.
        names: The names of its blocks, or None without a prefix cache.
        guesses: What speculation remembers of it.
        status: Set by the engine when the first token and the last token come.
    """

    prepared: Prepared
    token_ids: list[int]
    table: BlockTable
    sampler: SamplerState
    text: TextStream
    reader: Reader | None
    prompt_tokens: int
    computed: int = 0
    told: int = 0
    skipped: int = 0
    cached_tokens: int = 0
    preempted: bool = False
    returned: int = 0
    reasoning_tokens: int = 0
    names: Chain | None = None
    guesses: Guesses = field(default_factory=Guesses)
    status: Status = field(default=Status.PREFILL)

    @property
    def output_tokens(self) -> int:
        """How many tokens were generated."""
        return len(self.token_ids) - self.prompt_tokens

    @property
    def missing(self) -> int:
        """How many tokens are to be computed before the next one can be drawn as ever.

        All of the prompt; after preemption, all that was held before.
        """
        held_before = len(self.token_ids)
        if held_before > self.prompt_tokens:
            held_before -= 1
        return held_before - self.computed

    @property
    def scored(self) -> bool:
        """Whether log-probabilities of its prompt are still to be given."""
        wanted = self.prepared.item.prompt_logprobs is not None
        return wanted and self.returned < self.prompt_tokens

    @property
    def most_cached(self) -> int:
        """How many tokens may come out of the cache: those whose logits nobody wants."""
        return max(0, self.returned - 1) if self.scored else len(self.token_ids) - 1

    def scored_rows(self, end: int) -> int:
        """Return how many rows tell how likely the prompt was, when `end` tokens are computed.

        The logits of a token tell about the one after it; the first has none.
        """
        if not self.scored:
            return 0
        return max(0, min(end + 1, self.prompt_tokens) - max(1, self.returned))

    def skip_to(self, computed: int) -> None:
        """Go on where the blocks that were found end."""
        self.skipped += computed - self.computed
        if not self.preempted:
            self.cached_tokens += computed - self.computed
        self.computed = computed

    def tell(self) -> tuple[int, int]:
        """Return how far it went since it was last told, and how much of that was found."""
        units, skipped = self.computed - self.told, self.skipped
        self.told, self.skipped = self.computed, 0
        return units, skipped

    def rewind(self) -> None:
        """Give the blocks back, and with them all that was computed."""
        self.table.clear()
        self.computed = self.told = self.skipped = 0
        self.preempted = True
        self.guesses.rewind()

    def due(self, units: int) -> int:
        """Return how many tokens a quantum of `units` computes.

        A preempted sequence first computes again what it held, and no more, so that its
        next step goes on exactly where it was.
        """
        missing = self.missing
        if missing <= 0:
            return 1
        return min(units, missing, SCORED_TOKENS) if self.scored else min(units, missing)


@dataclass(kw_only=True, slots=True)
class Portion:
    """What one step computes of one sequence.

    Attributes:
        slot: The sequence.
        start: The position of the first token.
        end: The position after the last, without drafts.
        scored_rows: How many rows of logits tell how likely the prompt's tokens were; they
            come before those that a token is drawn for.
        drafts: Guesses at the tokens that follow; set by `Speculation`.
    """

    slot: Slot
    start: int
    end: int
    scored_rows: int = 0
    drafts: Sequence[int] = ()

    @property
    def draws(self) -> bool:
        """Whether the next token is drawn: all that there are so far are computed."""
        return self.end == len(self.slot.token_ids)

    @property
    def drawn_rows(self) -> int:
        """How many rows of logits a token is drawn for."""
        return 1 + len(self.drafts) if self.draws else 0

    @property
    def returnable(self) -> int:
        """How many tokens of the prompt can be given back after this step.

        The logits of a token tell how likely the one after it was.
        """
        return min(self.end + 1, self.slot.prompt_tokens)
