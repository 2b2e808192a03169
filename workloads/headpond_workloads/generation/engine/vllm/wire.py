"""What is said to the process that has vLLM, and what it answers: one JSON value a line.

The process is told a `Start`, and answers with a `Started`. Then it is asked for steps, one
at a time: an `Ask` each, answered by a `Reply`. All are plain dictionaries: the process has
vLLM's environment, and nothing of ours in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import (
    Literal,
    Required,  # pydantic needs these before Python 3.12
)

from typing_extensions import TypedDict

Likely = Sequence[tuple[int, float]]
"""A token with its log-probability, then the likeliest ones with theirs, most likely first."""


class Start(TypedDict):
    """The model, and what it may take.

    Attributes:
        folder: The model's files.
        dtype: What to compute in.
        context_tokens: The most tokens of one sequence.
        block_tokens: Tokens of a KV block.
        blocks: How many blocks sequences can have.
        block_bytes: Of each, on one device.
        max_slots: The most sequences in a step.
        step_tokens: The most tokens in a step.
        tensor_parallel: Devices that share the model.
        prefix_cache: Whether prompts may reuse what their beginning computed before.
        eager: Whether nothing is compiled, and no graph recorded.
    """

    folder: str
    dtype: str
    context_tokens: int
    block_tokens: int
    blocks: int
    block_bytes: int
    max_slots: int
    step_tokens: int
    tensor_parallel: int
    prefix_cache: bool
    eager: bool


class Started(TypedDict):
    """The model is loaded.

    Attributes:
        version: Of vLLM.
        blocks: How many blocks sequences can have.
    """

    version: str
    blocks: int


class Sampled(TypedDict):
    """Fields of `vllm.SamplingParams`, by their names; what is not here is as it is there."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int | None
    max_tokens: int
    min_tokens: int
    stop_token_ids: Sequence[int]
    allowed_token_ids: Sequence[int] | None
    logprobs: int | None
    prompt_logprobs: int | None


class Request(TypedDict):
    """A sequence to begin.

    Attributes:
        number: What it is called from now on.
        token_ids: The prompt.
        salt: Only requests of the same one share cached prefixes; None shares with nobody
            that has one.
        sampled: How tokens are chosen.
        logit_bias: Added to logits, by token; JSON has no other keys than texts.
        end_ids: What must not come before `min_tokens`.
        bad_words: Tokens that must not follow each other.
    """

    number: int
    token_ids: Sequence[int]
    salt: str | None
    sampled: Sampled
    logit_bias: Sequence[tuple[int, float]]
    end_ids: Sequence[int]
    bad_words: Sequence[Sequence[int]]


class Ask(TypedDict):
    """A step: end some sequences, begin others, and advance all there are."""

    abort: Sequence[int]
    add: Sequence[Request]


class News(TypedDict, total=False):
    """What became of one sequence in a step; what is left out is 0, empty or no.

    Attributes:
        number: Which one; always there.
        computed: How many of its tokens were computed, or found.
        cached: How many of these were found in the prefix cache.
        token_ids: What was generated.
        likely: How likely each of these was, where that was asked for.
        prompt: The same of the prompt's tokens but the first, with the first that is generated.
        finished: Whether that was all.
        failed: Why it ends without a result: vLLM did not take it, or logits were NaN.
    """

    number: Required[int]
    computed: int
    cached: int
    token_ids: Sequence[int]
    likely: Sequence[Likely]
    prompt: Sequence[Likely]
    finished: bool
    failed: Literal["refused", "not finite"]


class Reply(TypedDict):
    """What a step did."""

    news: Sequence[News]
