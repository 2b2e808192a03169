"""What advances the engine's slots: its own forward, or an engine of somebody else's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headpond.engine import Quantum
from headpond.errors import HeadpondError
from headpond_workloads.generation.engine.sampler import Drawn
from headpond_workloads.generation.engine.sequence import Portion, Slot
from headpond_workloads.generation.items import GenerationItem


@dataclass(frozen=True, kw_only=True, slots=True)
class Advance:
    """What a step computed of one slot, before anything is made of it.

    Attributes:
        portion: How far it went.
        scores: How likely the prompt's tokens were that the portion makes known.
        drawn: The tokens that follow; none while the prompt is not computed.
        error: Why the slot ends here without a result.
    """

    portion: Portion
    scores: Sequence[Drawn] = ()
    drawn: Sequence[Drawn] = ()
    error: HeadpondError | None = None


class Core(Protocol):
    """Advances slots over the blocks of one KV cache."""

    def check(self, item: GenerationItem, prompt_tokens: int) -> None:
        """Refuse what can't be done; safe to call from any thread.

        Raises:
            InvalidRequest: Names the field.
        """
        ...

    def step(self, quanta: Sequence[Quantum[Slot]]) -> Sequence[Advance]:
        """Compute a step; the slots are told of it afterwards, but for their blocks.

        Raises:
            BlocksExhausted: The slots need more blocks than there are; none advanced.
            WorkerLost: A process that it computes with is lost; see `lost`.
        """
        ...

    def drop(self, slot: Slot) -> None:
        """Forget a slot that is over."""
        ...

    def tallies(self) -> Mapping[str, int]:
        """Return what it counts of the record's tallies, beside those of the blocks."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it has lost a process that it computes with, and never computes again."""
        ...

    def close(self) -> None:
        """End the processes that it computes with, if any."""
        ...
