"""Keyword arguments of the responses resource, as type checkers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, Required, TypedDict

from headpond_workloads.generation.params import JsonSchema, PlainFormat, SamplingParams
from headpond_workloads.generation.schema_responses import OutputItem
from headpond_workloads.generation.schema_tools import ReasoningEffort


class InputPart(TypedDict):
    """A part of a turn."""

    type: Literal["input_text", "output_text"]
    text: str


class InputMessage(TypedDict):
    """One turn of a conversation."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | Sequence[InputPart]
    type: NotRequired[Literal["message"]]


class FunctionCallItem(TypedDict):
    """A call that the model made; `arguments` is JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class FunctionCallOutputItem(TypedDict):
    """What came of a call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | Sequence[InputPart]


class ResponseFunctionParam(TypedDict):
    """A function that the model may ask for."""

    type: Literal["function"]
    name: str
    description: NotRequired[str | None]
    parameters: NotRequired[JsonSchema | None]
    strict: NotRequired[bool | None]


class NamedFunctionChoice(TypedDict):
    """The function that must be called."""

    type: Literal["function"]
    name: str


class SchemaFormat(TypedDict):
    """JSON that a schema allows."""

    type: Literal["json_schema"]
    name: str
    schema: JsonSchema
    description: NotRequired[str]
    strict: NotRequired[bool | None]


class TextFormatParam(TypedDict):
    """What the text is to be."""

    format: PlainFormat | SchemaFormat


class ReasoningEffortParam(TypedDict):
    """How much the model is to think."""

    effort: ReasoningEffort | None


InputItemParam = InputMessage | FunctionCallItem | FunctionCallOutputItem | OutputItem
"""An item of the input; those of an earlier response can be given as they are."""


class ResponseParams(SamplingParams, total=False):
    """What `responses.create` takes."""

    input: Required[str | Sequence[InputItemParam]]
    instructions: str | None
    max_output_tokens: int | None
    text: TextFormatParam | None
    tools: Sequence[ResponseFunctionParam] | None
    tool_choice: Literal["none", "auto", "required"] | NamedFunctionChoice | None
    parallel_tool_calls: bool | None
    reasoning: ReasoningEffortParam | None
    include: Sequence[str] | None
    top_logprobs: int | None
    chat_template_kwargs: Mapping[str, object] | None
    metadata: Mapping[str, str] | None
    prompt_cache_key: str | None
    store: bool | None
