"""What the engine needs of a forward: spans in, logits out, over blocks of a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.logits import Logits
from headpond_workloads.generation.engine.reading import Reading


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The tokens that one sequence computes in a step.

    Attributes:
        token_ids: The tokens, at least one.
        start: The position of the first.
        blocks: The sequence's block table; it reaches past the last token.
        logits: How many of the last tokens' logits are wanted: 1 to draw the next token,
            more to check drafts or to tell how likely the prompt is.
        adapter: The LoRA adapter by number, or None.
    """

    token_ids: Sequence[int]
    start: int
    blocks: Sequence[int]
    logits: int = 0
    adapter: int | None = None

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.start + len(self.token_ids)


class Runner(Protocol):
    """Computes the spans of a step in one forward."""

    def forward(self, spans: Sequence[Span]) -> Logits:
        """Compute every span and return the logits that are wanted.

        Returns:
            A row for each that is wanted, in the order of `spans`.
        """
        ...


class CacheMemory(Protocol):
    """The memory of the paged KV cache."""

    @property
    def block_tokens(self) -> int:
        """Tokens in one block."""
        ...

    def clear(self, blocks: Sequence[int]) -> None:
        """Set blocks to zero, for a new holder."""
        ...


def _never() -> bool:
    return False


def _nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Forward:
    """What `GenerationEngine` computes with.

    Attributes:
        runner: Computes steps.
        cache: The memory of keys and values that it reads and writes.
        lost: Whether it has lost a process that it computes with, and never computes again.
        close: Ends the processes that it computes with, if any; they also end with this one.
    """

    runner: Runner
    cache: CacheMemory
    lost: Callable[[], bool] = _never
    close: Callable[[], None] = _nothing


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A bundle's model, ready to be given memory.

    Attributes:
        reading: What it is.
        shape: Of its keys and values.
        make: Gives it a cache of a shape and so many blocks.
    """

    reading: Reading
    shape: KvShape
    make: Callable[[KvShape, int], Forward]
