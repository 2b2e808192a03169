"""Wire types of `POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from headpond_workloads.generation.schema import GenerationRequest, Usage
from headpond_workloads.generation.schema_fields import (
    MAX_DOCUMENTS,
    MAX_PARTS,
    MAX_TURNS,
    Count,
    Flag,
    JsonObject,
    NonEmpty,
    at_most,
)
from headpond_workloads.generation.schema_logprobs import PromptLogprobs, TokenLogprobs
from headpond_workloads.generation.schema_tools import (
    FEW,
    FunctionCall,
    FunctionCallChunk,
    FunctionCallParam,
    FunctionChoiceField,
    Functions,
    ReasoningEffort,
    ToolCallChunk,
    ToolCallMessage,
    ToolCallParam,
    ToolChoiceField,
    Tools,
)

CHAT_PATH = "/v1/chat/completions"

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
ChatFinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class ContentPart(BaseModel):
    """One part of a message; only `text` and `refusal` can be served."""

    model_config = ConfigDict(frozen=True)

    type: str
    text: str | None = None
    refusal: str | None = None


def _as_parts(value: object) -> object:
    if isinstance(value, str):
        return (ContentPart(type="text", text=value),)
    if value is not None and not isinstance(value, list):
        raise PydanticCustomError("content", "must be a string, or an array of parts")
    return value


Content = Annotated[
    Annotated[tuple[ContentPart, ...], Field(fail_fast=True), at_most(MAX_PARTS)] | None,
    BeforeValidator(_as_parts, json_schema_input_type=str | list[ContentPart] | None),
]


class ChatMessage(BaseModel):
    """One turn of the conversation so far."""

    model_config = ConfigDict(frozen=True)

    role: Role
    content: Content = None
    name: str | None = None
    refusal: str | None = None
    tool_call_id: NonEmpty | None = None
    tool_calls: Annotated[tuple[ToolCallParam, ...], Field(fail_fast=True), FEW] | None = None
    function_call: FunctionCallParam | None = None
    audio: JsonObject | None = None
    reasoning_content: str | None = Field(
        default=None, description="Extension: what the model thought before it answered."
    )
    reasoning: str | None = Field(
        default=None, description="Extension: another name of reasoning_content."
    )


def _some(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    # `min_length` would count only the valid messages, and add an error of its own.
    if not messages:
        raise PydanticCustomError("messages", "must hold at least one message")
    return messages


Messages = Annotated[
    tuple[ChatMessage, ...],
    Field(fail_fast=True),
    at_most(MAX_TURNS),
    AfterValidator(_some),
    Field(json_schema_extra={"minItems": 1}),
]


Documents = Annotated[tuple[JsonObject, ...], Field(fail_fast=True), at_most(MAX_DOCUMENTS)]


class ChatCompletionRequest(GenerationRequest):
    """A conversation to go on with."""

    messages: Messages
    max_completion_tokens: Annotated[Count, Field(ge=1)] | None = None
    max_tokens: Annotated[Count, Field(ge=1)] | None = Field(
        default=None, description="The older name of max_completion_tokens."
    )
    logprobs: Flag | None = None
    top_logprobs: Annotated[Count, Field(ge=0, le=20)] | None = None

    tools: Tools | None = None
    tool_choice: ToolChoiceField = None
    parallel_tool_calls: Flag | None = None
    functions: Functions | None = Field(default=None, description="The older form of tools.")
    function_call: FunctionChoiceField = Field(
        default=None, description="The older form of tool_choice."
    )
    reasoning_effort: ReasoningEffort | None = None
    chat_template_kwargs: JsonObject | None = Field(
        default=None, description="Extension: further variables of the model's chat template."
    )
    documents: Documents | None = Field(
        default=None, description="Extension: sources that the model's chat template shows."
    )
    add_generation_prompt: Flag | None = Field(
        default=None, description="Extension: whether the answer's turn is begun (true)."
    )
    continue_final_message: Flag | None = Field(
        default=None, description="Extension: the answer goes on with the last message."
    )

    add_special_tokens: Flag | None = None
    audio: JsonObject | None = None
    best_of: Count | None = None
    echo: Flag | None = None
    modalities: Annotated[tuple[str, ...], Field(fail_fast=True), FEW] | None = None
    moderation: JsonObject | None = None
    prediction: JsonObject | None = None
    store: Flag | None = None
    verbosity: str | None = None
    web_search_options: JsonObject | None = None


class ChoiceLogprobs(BaseModel):
    """Log-probabilities of the tokens of one choice or chunk."""

    content: list[TokenLogprobs] | None = None
    refusal: list[TokenLogprobs] | None = None


def _absent(value: object) -> bool:
    return value is None


class AssistantMessage(BaseModel):
    """What the model said, and which tools it asks for."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = Field(default=None, exclude_if=_absent)
    tool_calls: list[ToolCallMessage] | None = Field(default=None, exclude_if=_absent)
    function_call: FunctionCall | None = Field(default=None, exclude_if=_absent)


class ChatChoice(BaseModel):
    """One sample."""

    index: int
    message: AssistantMessage
    logprobs: ChoiceLogprobs | None = None
    finish_reason: ChatFinishReason


class ChatCompletion(BaseModel):
    """The answer to a conversation; with `prompt_logprobs` only where they were asked for."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None
    system_fingerprint: str | None = None
    prompt_logprobs: PromptLogprobs | None = Field(default=None, exclude_if=_absent)


class Delta(BaseModel):
    """What a chunk adds to a message; the first one of a choice carries the role."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallChunk] | None = None
    function_call: FunctionCallChunk | None = None


class ChunkChoice(BaseModel):
    """One sample's part of a chunk."""

    index: int
    delta: Delta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: ChatFinishReason | None = None


class ChatCompletionChunk(BaseModel):
    """One event of a streamed answer; fields that were not set are left out."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChunkChoice]
    usage: Usage | None = None
