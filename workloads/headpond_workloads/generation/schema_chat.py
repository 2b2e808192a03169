"""Wire types of `POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
)
from pydantic_core import PydanticCustomError

from headpond_workloads.generation.items import FinishReason
from headpond_workloads.generation.schema import Count, Flag, GenerationRequest, Usage

CHAT_PATH = "/v1/chat/completions"

Role = Literal["system", "developer", "user", "assistant", "tool"]


class ContentPart(BaseModel):
    """One part of a message; only `text` parts can be served."""

    model_config = ConfigDict(frozen=True)

    type: str
    text: str | None = None


def _as_parts(value: object) -> object:
    return (ContentPart(type="text", text=value),) if isinstance(value, str) else value


# Lists fail at their first bad entry: a body of a million bad ones would otherwise cost a
# second of the event loop and half a gigabyte of errors.
Content = Annotated[
    Annotated[tuple[ContentPart, ...], Field(fail_fast=True)] | None,
    BeforeValidator(_as_parts, json_schema_input_type=str | list[ContentPart] | None),
]


class ChatMessage(BaseModel):
    """One turn of the conversation so far."""

    model_config = ConfigDict(frozen=True)

    role: Role
    content: Content = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: JsonValue = None
    function_call: JsonValue = None
    audio: JsonValue = None


def _some(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    # `min_length` would count only the valid messages, and add an error of its own.
    if not messages:
        raise PydanticCustomError("messages", "must hold at least one message")
    return messages


Messages = Annotated[
    tuple[ChatMessage, ...],
    Field(fail_fast=True),
    AfterValidator(_some),
    Field(json_schema_extra={"minItems": 1}),
]


class ChatCompletionRequest(GenerationRequest):
    """A conversation to go on with."""

    messages: Messages
    max_completion_tokens: Annotated[Count, Field(ge=1)] | None = None
    max_tokens: Annotated[Count, Field(ge=1)] | None = Field(
        default=None, description="The older name of max_completion_tokens."
    )
    logprobs: Flag | None = None
    top_logprobs: Annotated[Count, Field(ge=0, le=20)] | None = None

    metadata: dict[str, str] | None = None
    parallel_tool_calls: Flag | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None

    audio: JsonValue = None
    function_call: JsonValue = None
    functions: JsonValue = None
    modalities: JsonValue = None
    moderation: JsonValue = None
    reasoning_effort: JsonValue = None
    response_format: JsonValue = None
    store: Flag | None = None
    tool_choice: JsonValue = None
    tools: JsonValue = None
    verbosity: JsonValue = None
    web_search_options: JsonValue = None


class TopLogprob(BaseModel):
    """An alternative to a token; `bytes` are exact where `token` shows U+FFFD."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprobs(BaseModel):
    """A token of the answer, with its likeliest alternatives."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(BaseModel):
    """Log-probabilities of the tokens of one choice or chunk."""

    content: list[TokenLogprobs] | None = None
    refusal: list[TokenLogprobs] | None = None


class AssistantMessage(BaseModel):
    """What the model said."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: str | None = None


class ChatChoice(BaseModel):
    """One sample."""

    index: int
    message: AssistantMessage
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason


class ChatCompletion(BaseModel):
    """The answer to a conversation."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None
    system_fingerprint: str | None = None


class Delta(BaseModel):
    """What a chunk adds to a message; the first one of a choice carries the role."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None


class ChunkChoice(BaseModel):
    """One sample's part of a chunk."""

    index: int
    delta: Delta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatCompletionChunk(BaseModel):
    """One event of a streamed answer; fields that were not set are left out."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChunkChoice]
    usage: Usage | None = None
