"""What a call's events add up to: one outcome per item, and the usage of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headpond.call import Failed, Output
from headpond.dialect import ItemEvent
from headpond_workloads.generation.items import ChosenToken, FinishReason, TextDelta, TokenUsage
from headpond_workloads.generation.schema import PromptTokensDetails, Usage


def deltas(events: Sequence[ItemEvent]) -> Iterator[tuple[int, TextDelta]]:
    """Yield each item's index with what a step added to it.

    Raises:
        HeadpondError: An item failed; the dialects have no place for one failed choice.
    """
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Output):
            if not isinstance(event.payload, TextDelta):
                raise TypeError(f"generation gives TextDelta, not {type(event.payload).__name__}")
            yield event.item, event.payload


class UsageCount:
    """Adds up tokens over items: samples of one prompt share its tokens."""

    __slots__ = ("_cached", "_completion", "_prompts", "_samples")

    def __init__(self, samples: int) -> None:
        """Count for calls in which each run of `samples` items has one prompt."""
        self._samples = samples
        self._completion = 0
        self._prompts: dict[int, int] = {}
        self._cached: dict[int, int] = {}

    def add(self, item: int, usage: TokenUsage) -> None:
        """Count what one finished item came to."""
        prompt = item // self._samples
        self._completion += usage.completion_tokens
        self._prompts[prompt] = usage.prompt_tokens
        # A later sample may find the prompt that an earlier one left in the cache.
        cached = self._cached.get(prompt, usage.cached_tokens)
        self._cached[prompt] = min(cached, usage.cached_tokens)

    def total(self) -> Usage:
        """Return what all items came to."""
        prompt = sum(self._prompts.values())
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=self._completion,
            total_tokens=prompt + self._completion,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=sum(self._cached.values())),
        )


@dataclass(slots=True)
class Outcome:
    """The whole of one item, folded from its deltas."""

    text: str = ""
    logprobs: list[ChosenToken] = field(default_factory=list)
    finish_reason: FinishReason = "stop"


def fold(events: Sequence[ItemEvent], *, items: int, samples: int) -> tuple[list[Outcome], Usage]:
    """Fold every event of a finished call into an outcome per item, and the usage.

    Raises:
        HeadpondError: An item failed.
    """
    pieces: list[list[str]] = [[] for _ in range(items)]
    outcomes = [Outcome() for _ in range(items)]
    count = UsageCount(samples)
    for item, delta in deltas(events):
        pieces[item].append(delta.text)
        outcomes[item].logprobs += delta.logprobs
        if delta.finish_reason is not None:
            outcomes[item].finish_reason = delta.finish_reason
        if delta.usage is not None:
            count.add(item, delta.usage)
    for outcome, texts in zip(outcomes, pieces, strict=True):
        outcome.text = "".join(texts)
    return outcomes, count.total()
