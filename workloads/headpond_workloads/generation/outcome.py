"""What a call's events add up to: one outcome per item, and the usage of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headpond.call import Failed, Output
from headpond.dialect import ItemEvent
from headpond_workloads.generation.items import (
    ChosenToken,
    FinishReason,
    TextDelta,
    TokenUsage,
    ToolCall,
    ToolCallDelta,
)
from headpond_workloads.generation.schema import (
    CompletionTokensDetails,
    PromptTokensDetails,
    Usage,
)


def outputs(events: Sequence[ItemEvent]) -> Iterator[Output]:
    """Yield what items gave.

    Raises:
        HeadpondError: An item failed; the dialects have no place for one failed choice.
    """
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Output):
            yield event


def deltas(events: Sequence[ItemEvent]) -> Iterator[tuple[int, TextDelta]]:
    """Yield each item's index with what a step added to it.

    Raises:
        HeadpondError: An item failed.
    """
    for event in outputs(events):
        if not isinstance(event.payload, TextDelta):
            raise TypeError(f"generation gives TextDelta, not {type(event.payload).__name__}")
        yield event.item, event.payload


class UsageCount:
    """Adds up tokens over items: samples of one prompt share its tokens."""

    __slots__ = ("_cached", "_completion", "_prompts", "_reasoning", "_samples")

    def __init__(self, samples: int) -> None:
        """Count for calls in which each run of `samples` items has one prompt."""
        self._samples = samples
        self._completion = 0
        self._reasoning = 0
        self._prompts: dict[int, int] = {}
        self._cached: dict[int, int] = {}

    def add(self, item: int, usage: TokenUsage) -> None:
        """Count what one finished item came to."""
        prompt = item // self._samples
        self._completion += usage.completion_tokens
        self._reasoning += usage.reasoning_tokens
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
            completion_tokens_details=CompletionTokensDetails(reasoning_tokens=self._reasoning),
        )


@dataclass(slots=True)
class Outcome:
    """The whole of one item, folded from its deltas.

    Attributes:
        text: What it said, after the prompt where that is echoed.
        reasoning: What it thought before.
        tool_calls: What it asks for, in the order of the calls.
        logprobs: One entry per token, those of the prompt first where they were asked for.
        prompt_logprobs: How many of these are the prompt's.
        finish_reason: Why it ended.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: list[ChosenToken] = field(default_factory=list)
    prompt_logprobs: int = 0
    finish_reason: FinishReason = "stop"


class _Folding:
    """One item while its deltas are collected."""

    __slots__ = ("_calls", "_outcome", "_reasoning", "_texts")

    def __init__(self) -> None:
        self._outcome = Outcome()
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, list[ToolCallDelta]] = {}

    def add(self, delta: TextDelta) -> None:
        self._texts.append(delta.text)
        self._reasoning.append(delta.reasoning)
        self._outcome.logprobs += delta.logprobs
        if delta.is_prompt:
            self._outcome.prompt_logprobs += len(delta.logprobs)
        for call in delta.tool_calls:
            self._calls.setdefault(call.index, []).append(call)
        if delta.finish_reason is not None:
            self._outcome.finish_reason = delta.finish_reason

    def outcome(self) -> Outcome:
        self._outcome.text = "".join(self._texts)
        self._outcome.reasoning = "".join(self._reasoning)
        self._outcome.tool_calls = tuple(_whole(self._calls[at]) for at in sorted(self._calls))
        return self._outcome


def _whole(call: Iterable[ToolCallDelta]) -> ToolCall:
    parts = list(call)
    return ToolCall(
        call_id=next((part.call_id for part in parts if part.call_id), ""),
        name=next((part.name for part in parts if part.name), ""),
        arguments="".join(part.arguments for part in parts),
    )


def fold(events: Sequence[ItemEvent], *, items: int, samples: int) -> tuple[list[Outcome], Usage]:
    """Fold every event of a finished call into an outcome per item, and the usage.

    Raises:
        HeadpondError: An item failed.
    """
    folding = [_Folding() for _ in range(items)]
    count = UsageCount(samples)
    for item, delta in deltas(events):
        folding[item].add(delta)
        if delta.usage is not None:
            count.add(item, delta.usage)
    return [each.outcome() for each in folding], count.total()
