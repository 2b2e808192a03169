"""Wire types of `POST /v1/responses`: the request, and the response with its items."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from headpond_workloads.generation.schema import SamplingRequest
from headpond_workloads.generation.schema_chat import ContentPart
from headpond_workloads.generation.schema_fields import (
    MAX_PARTS,
    MAX_TURNS,
    Count,
    Flag,
    JsonObject,
    Name,
    NonEmpty,
    at_most,
)
from headpond_workloads.generation.schema_logprobs import TokenLogprobs
from headpond_workloads.generation.schema_tools import (
    FEW,
    ReasoningEffort,
    ToolChoiceField,
)

RESPONSES_PATH = "/v1/responses"

ItemStatus = Literal["in_progress", "completed", "incomplete"]


def _as_parts(value: object) -> object:
    if isinstance(value, str):
        return (ContentPart(type="input_text", text=value),)
    if value is not None and not isinstance(value, list | tuple):
        raise PydanticCustomError("content", "must be a string, or an array of parts")
    return value


Parts = Annotated[
    Annotated[tuple[ContentPart, ...], Field(fail_fast=True), at_most(MAX_PARTS)] | None,
    BeforeValidator(_as_parts, json_schema_input_type=str | list[ContentPart] | None),
]


class InputItem(BaseModel):
    """A turn, a call that the model made, what its tool said, or what the model thought."""

    model_config = ConfigDict(frozen=True)

    type: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Parts = None
    call_id: NonEmpty | None = None
    name: NonEmpty | None = None
    arguments: str | None = None
    output: Parts = None


def _as_items(value: object) -> object:
    """Turn a text into the user's turn."""
    if isinstance(value, str):
        return (InputItem(role="user", content=(ContentPart(type="input_text", text=value),)),)
    if value is not None and not isinstance(value, list | tuple):
        raise PydanticCustomError("input", "must be a string, or an array of items")
    return value


def _some(items: tuple[InputItem, ...]) -> tuple[InputItem, ...]:
    if not items:
        raise PydanticCustomError("input", "must hold at least one item")
    return items


Input = Annotated[
    tuple[InputItem, ...],
    Field(fail_fast=True),
    at_most(MAX_TURNS),
    AfterValidator(_some),
    BeforeValidator(_as_items, json_schema_input_type=str | list[InputItem]),
]


class FormatParam(BaseModel):
    """`text`, `json_object`, or `json_schema` with its schema."""

    model_config = ConfigDict(frozen=True)

    type: str
    name: Name | None = None
    description: str | None = None
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: Flag | None = None


class TextParam(BaseModel):
    """What the text is to be."""

    model_config = ConfigDict(frozen=True)

    format: FormatParam | None = None
    verbosity: str | None = None


class ReasoningParam(BaseModel):
    """How much the model is to think."""

    model_config = ConfigDict(frozen=True)

    effort: ReasoningEffort | None = None
    summary: str | None = None


class ResponseToolParam(BaseModel):
    """A tool; only functions can be served."""

    model_config = ConfigDict(frozen=True)

    type: str
    name: Name | None = None
    description: str | None = None
    parameters: JsonObject | None = None
    strict: Flag | None = None


class ResponseRequest(SamplingRequest):
    """An input to answer."""

    input: Input
    instructions: str | None = None
    max_output_tokens: Annotated[Count, Field(ge=1)] | None = None
    text: TextParam | None = None
    tools: Annotated[tuple[ResponseToolParam, ...], Field(fail_fast=True), FEW] | None = None
    tool_choice: ToolChoiceField = None
    parallel_tool_calls: Flag | None = None
    reasoning: ReasoningParam | None = None
    include: Annotated[tuple[str, ...], Field(fail_fast=True), FEW] | None = None
    top_logprobs: Annotated[Count, Field(ge=0, le=20)] | None = None
    chat_template_kwargs: JsonObject | None = Field(
        default=None, description="Extension: further variables of the model's chat template."
    )

    max_tool_calls: Count | None = None
    store: Flag | None = Field(default=None, description="Accepted; nothing is ever stored.")

    background: Flag | None = None
    conversation: str | JsonObject | None = None
    moderation: JsonObject | None = None
    previous_response_id: str | None = None
    prompt: JsonObject | None = None
    truncation: str | None = None


class OutputText(BaseModel):
    """What the model said."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[JsonObject] = Field(default_factory=list)
    logprobs: list[TokenLogprobs] = Field(default_factory=list)


class OutputMessage(BaseModel):
    """A turn of the model."""

    id: str
    type: Literal["message"] = "message"
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class OutputCall(BaseModel):
    """A call that the model asks for; `arguments` is JSON text."""

    id: str
    type: Literal["function_call"] = "function_call"
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class ReasoningText(BaseModel):
    """What the model thought."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class OutputReasoning(BaseModel):
    """What the model thought before it answered; it is not summed up."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    status: ItemStatus
    summary: list[JsonObject] = Field(default_factory=list)
    content: list[ReasoningText]


OutputItem = Annotated[OutputMessage | OutputCall | OutputReasoning, Field(discriminator="type")]


class FunctionTool(BaseModel):
    """A function that the model may ask for."""

    type: Literal["function"] = "function"
    name: str
    description: str | None = None
    parameters: JsonObject
    strict: bool


class FunctionChoice(BaseModel):
    """The function that must be called."""

    type: Literal["function"] = "function"
    name: str


class TextFormat(BaseModel):
    """What the text had to be; the schema's fields are there for a schema only."""

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = Field(default=None, exclude_if=lambda value: value is None)
    description: str | None = Field(default=None, exclude_if=lambda value: value is None)
    schema_: JsonObject | None = Field(
        default=None, alias="schema", exclude_if=lambda value: value is None
    )
    strict: bool | None = Field(default=None, exclude_if=lambda value: value is None)


class TextConfig(BaseModel):
    """What the text had to be."""

    format: TextFormat


class ReasoningConfig(BaseModel):
    """How much the model was to think."""

    effort: ReasoningEffort | None = None
    summary: None = None


class IncompleteDetails(BaseModel):
    """Why a response is not whole."""

    reason: Literal["max_output_tokens"]


class InputTokensDetails(BaseModel):
    """Where the input's tokens came from."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(BaseModel):
    """What the generated tokens were for."""

    reasoning_tokens: int


class ResponseUsage(BaseModel):
    """What a response came to in tokens."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class Response(BaseModel):
    """A response, whole or in progress."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete"]
    background: bool = False
    error: None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: None = None
    prompt_cache_key: str | None = None
    reasoning: ReasoningConfig
    safety_identifier: str | None = None
    service_tier: Literal["default"] = "default"
    store: bool = False
    temperature: float
    text: TextConfig
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice
    tools: list[FunctionTool]
    top_logprobs: int = 0
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None

    @property
    def output_text(self) -> str:
        """All that was said, as one text."""
        messages = [item for item in self.output if isinstance(item, OutputMessage)]
        return "".join(part.text for message in messages for part in message.content)
