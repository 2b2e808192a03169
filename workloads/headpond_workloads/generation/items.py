"""What the generation engine is asked for and what it gives back, in no dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One turn of a conversation, as templates see it."""

    role: str
    content: str
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Exactly one of a conversation, a text, or token IDs.

    Attributes:
        param: The wire field it came from, for errors: `messages`, `prompt`.
    """

    messages: tuple[Message, ...] | None = None
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    param: str = "prompt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How the next token is chosen from the logits.

    Attributes:
        temperature: 0 is greedy: the token with the highest logit.
        top_p: Keep the smallest set of tokens whose probabilities reach this.
        top_k: Keep this many tokens; 0 keeps all.
        min_p: Keep tokens at least this likely, relative to the likeliest.
        presence_penalty: Subtracted from the logit of every token already generated.
        frequency_penalty: The same, times how often it was generated.
        repetition_penalty: Divides (or multiplies) logits of tokens of prompt and output.
        logit_bias: Added to the logits of these token IDs.
        seed: Makes sampling repeatable, whatever else is in the batch; None draws one.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationItem:
    """One sequence to generate.

    Attributes:
        prompt: What to go on from.
        max_output_tokens: The most tokens to generate; None means what the context leaves.
        sampling: How tokens are chosen.
        stop: Strings that end the text; none of them, in part or whole, is given out.
        ignore_eos: Go on past the end-of-sequence token (benchmarks).
        logprobs: None for none, else how many alternatives to give beside each token (0-20).
        max_tokens_param: The wire field that set `max_output_tokens`, for errors.
    """

    prompt: Prompt
    max_output_tokens: int | None = None
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    max_tokens_param: str = "max_tokens"


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its log-probability before temperature and filters.

    Attributes:
        token: Its text; U+FFFD stands for bytes that are no character alone.
        token_id: Its ID.
        logprob: Natural log of its probability.
        raw: Its exact bytes; joined over tokens they are the exact text.
    """

    token: str
    token_id: int
    logprob: float
    raw: bytes


@dataclass(frozen=True, slots=True)
class ChosenToken:
    """A generated token with the likeliest alternatives, most likely first."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenUsage:
    """What one sequence came to, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """What one step added to a sequence; the last one has a reason and the usage.

    Attributes:
        text: Whole characters only, and nothing that may still become a stop string.
        token_ids: The tokens generated in this step.
        logprobs: One entry for each token in `token_ids`, when asked for.
        finish_reason: Set on the last delta only.
        usage: Set on the last delta only.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[ChosenToken, ...] = ()
    finish_reason: FinishReason | None = None
    usage: TokenUsage | None = None

    def __reduce__(self) -> tuple[Callable[..., TextDelta], tuple[object, ...]]:
        """Cross a lane at a third of the cost of a frozen dataclass's own pickling."""
        fields = (self.text, self.token_ids, self.logprobs, self.finish_reason, self.usage)
        return (_delta, fields)


def _delta(
    text: str,
    token_ids: tuple[int, ...],
    logprobs: tuple[ChosenToken, ...],
    finish_reason: FinishReason | None,
    usage: TokenUsage | None,
) -> TextDelta:
    return TextDelta(
        text=text,
        token_ids=token_ids,
        logprobs=logprobs,
        finish_reason=finish_reason,
        usage=usage,
    )
