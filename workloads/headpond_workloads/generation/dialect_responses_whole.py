"""A response as one object: what was asked, and what came of it so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from headpond.dialect import Heading
from headpond_workloads.generation.dialect_responses_output import Output
from headpond_workloads.generation.dialect_tools import MODES, Toolbox
from headpond_workloads.generation.items import FinishReason, Tool, ToolChoice, ToolName
from headpond_workloads.generation.schema import Usage
from headpond_workloads.generation.schema_responses import (
    FunctionChoice,
    FunctionTool,
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    ReasoningConfig,
    Response,
    ResponseRequest,
    ResponseUsage,
    TextConfig,
    TextFormat,
)

Status = Literal["in_progress", "completed", "incomplete"]


def render(
    request: ResponseRequest,
    tools: Toolbox,
    heading: Heading,
    output: Output,
    reason: FinishReason | None,
    usage: Usage | None,
) -> Response:
    """Return the response to a request; without a reason it is in progress."""
    status = _status(reason)
    return Response(
        id=f"resp_{heading.request_id}",
        created_at=heading.created_s,
        status=status,
        incomplete_details=(
            IncompleteDetails(reason="max_output_tokens") if status == "incomplete" else None
        ),
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        metadata=dict(request.metadata or {}),
        model=heading.model,
        output=output.wire(),
        parallel_tool_calls=request.parallel_tool_calls is not False,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=ReasoningConfig(effort=request.reasoning.effort if request.reasoning else None),
        safety_identifier=request.safety_identifier,
        temperature=1.0 if request.temperature is None else request.temperature,
        text=TextConfig(format=_format(request)),
        tool_choice=_choice(tools.choice),
        tools=list(_functions(tools.tools)),
        top_logprobs=request.top_logprobs or 0,
        top_p=1.0 if request.top_p is None else request.top_p,
        usage=None if usage is None else _usage(usage),
        user=request.user,
    )


def _status(reason: FinishReason | None) -> Status:
    if reason is None:
        return "in_progress"
    return "incomplete" if reason == "length" else "completed"


def _format(request: ResponseRequest) -> TextFormat:
    wanted = request.text.format if request.text is not None else None
    if wanted is None or wanted.type == "text":
        return TextFormat()
    if wanted.type == "json_object":
        return TextFormat(type="json_object")
    return TextFormat(
        type="json_schema",
        name=wanted.name,
        description=wanted.description,
        schema=wanted.schema_,
        strict=True if wanted.strict is None else wanted.strict,
    )


def _choice(
    choice: ToolChoice | ToolName,
) -> Literal["none", "auto", "required"] | FunctionChoice:
    mode = MODES.get(choice)
    return FunctionChoice(name=choice) if mode is None else mode


def _functions(tools: Iterable[Tool]) -> Iterable[FunctionTool]:
    for tool in tools:
        yield FunctionTool(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            strict=tool.strict,
        )


def _usage(usage: Usage) -> ResponseUsage:
    cached, thought = usage.prompt_tokens_details, usage.completion_tokens_details
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=cached.cached_tokens if cached is not None else 0
        ),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=thought.reasoning_tokens if thought is not None else 0
        ),
        total_tokens=usage.total_tokens,
    )
