"""Keyword arguments of the generation resources, as type checkers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, Required, TypedDict

from headpond_workloads.generation.schema_chat import Role


class TextPart(TypedDict):
    """A part of a message."""

    type: Literal["text"]
    text: str


class MessageParam(TypedDict):
    """One turn of a conversation."""

    role: Role
    content: str | Sequence[TextPart]
    name: NotRequired[str]
    tool_call_id: NotRequired[str]


class StreamOptionsParam(TypedDict, total=False):
    """What a stream carries beside the text."""

    include_usage: bool
    include_obfuscation: bool


class GenerationParams(TypedDict, total=False):
    """What both resources take; None is the same as absent."""

    model: Required[str]
    n: int | None
    temperature: float | None
    top_p: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    seed: int | None
    stop: str | Sequence[str] | None
    stream_options: StreamOptionsParam | None
    user: str | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    ignore_eos: bool | None
    extra_body: Mapping[str, object]


class ChatParams(GenerationParams, total=False):
    """What `chat.completions.create` takes."""

    messages: Required[Sequence[MessageParam]]
    max_completion_tokens: int | None
    max_tokens: int | None
    logprobs: bool | None
    top_logprobs: int | None
    metadata: Mapping[str, str] | None


class CompletionParams(GenerationParams, total=False):
    """What `completions.create` takes."""

    prompt: Required[str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]]
    max_tokens: int | None
    logprobs: int | None
    best_of: int | None
