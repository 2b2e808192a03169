"""Keyword arguments of the generation resources, as type checkers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, Required, TypedDict

from headpond.client.options import CallOptions
from headpond_workloads.generation.schema_chat import Role
from headpond_workloads.generation.schema_tools import ReasoningEffort

JsonSchema = Mapping[str, object]


class TextPart(TypedDict):
    """A part of a message."""

    type: Literal["text"]
    text: str


class FunctionCallParam(TypedDict):
    """A call that the model made; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCallParam(TypedDict):
    """The same with the identifier by which its answer refers to it."""

    id: str
    type: Literal["function"]
    function: FunctionCallParam


class MessageParam(TypedDict):
    """One turn of a conversation; an assistant's that calls tools may say nothing."""

    role: Role
    content: NotRequired[str | Sequence[TextPart] | None]
    name: NotRequired[str]
    tool_call_id: NotRequired[str]
    tool_calls: NotRequired[Sequence[ToolCallParam] | None]
    reasoning_content: NotRequired[str | None]


class StreamOptionsParam(TypedDict, total=False):
    """What a stream carries beside the text."""

    include_usage: bool
    include_obfuscation: bool


class FunctionParam(TypedDict):
    """A function that the model may ask for."""

    name: str
    description: NotRequired[str | None]
    parameters: NotRequired[JsonSchema | None]
    strict: NotRequired[bool | None]


class ToolParam(TypedDict):
    """A tool that the model may ask for."""

    type: Literal["function"]
    function: FunctionParam


class FunctionName(TypedDict):
    """A function by its name."""

    name: str


class NamedToolChoice(TypedDict):
    """The tool that must be called."""

    type: Literal["function"]
    function: FunctionName


class JsonSchemaParam(TypedDict):
    """A schema with its name."""

    name: str
    schema: JsonSchema
    description: NotRequired[str]
    strict: NotRequired[bool | None]


class PlainFormat(TypedDict):
    """Any text, or any JSON object."""

    type: Literal["text", "json_object"]


class JsonSchemaFormatParam(TypedDict):
    """JSON that a schema allows."""

    type: Literal["json_schema"]
    json_schema: JsonSchemaParam


class StructuredOutputsParam(TypedDict, total=False):
    """One of the ways to say what an output must be."""

    json: str | JsonSchema
    json_object: bool
    regex: str
    choice: Sequence[str]
    grammar: str


class SamplingParams(CallOptions, total=False):
    """What every resource takes; None is the same as absent."""

    model: Required[str]
    temperature: float | None
    top_p: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    seed: int | None
    stop: str | Sequence[str] | None
    stream_options: StreamOptionsParam | None
    user: str | None
    adapter: str | None
    allowed_token_ids: Sequence[int] | None
    bad_words: Sequence[str] | None
    cache_salt: str | None
    guided_choice: Sequence[str] | None
    guided_grammar: str | None
    guided_json: str | JsonSchema | None
    guided_regex: str | None
    ignore_eos: bool | None
    include_stop_str_in_output: bool | None
    min_p: float | None
    min_tokens: int | None
    repetition_penalty: float | None
    skip_special_tokens: bool | None
    stop_token_ids: Sequence[int] | None
    structured_outputs: StructuredOutputsParam | None
    top_k: int | None
    truncate_prompt_tokens: int | None


class ChatParams(SamplingParams, total=False):
    """What `chat.completions.create` takes."""

    messages: Required[Sequence[MessageParam]]
    n: int | None
    max_completion_tokens: int | None
    max_tokens: int | None
    logprobs: bool | None
    top_logprobs: int | None
    response_format: PlainFormat | JsonSchemaFormatParam | None
    tools: Sequence[ToolParam] | None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None
    parallel_tool_calls: bool | None
    reasoning_effort: ReasoningEffort | None
    chat_template_kwargs: Mapping[str, object] | None
    documents: Sequence[Mapping[str, object]] | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    prompt_logprobs: int | None
    return_tokens_as_token_ids: bool | None
    metadata: Mapping[str, str] | None
    prompt_cache_key: str | None


class CompletionParams(SamplingParams, total=False):
    """What `completions.create` takes."""

    prompt: Required[str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]]
    n: int | None
    response_format: PlainFormat | JsonSchemaFormatParam | None
    max_tokens: int | None
    logprobs: int | None
    best_of: int | None
    echo: bool | None
    add_special_tokens: bool | None
    prompt_logprobs: int | None
    return_tokens_as_token_ids: bool | None


class TokenizeParams(CallOptions, total=False):
    """What `tokenize` takes: a prompt or messages."""

    model: Required[str]
    prompt: str | None
    messages: Sequence[MessageParam] | None
    tools: Sequence[ToolParam] | None
    add_special_tokens: bool | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    chat_template_kwargs: Mapping[str, object] | None
    return_token_strs: bool | None


class DetokenizeParams(CallOptions):
    """What `detokenize` takes."""

    model: str
    tokens: Sequence[int]
