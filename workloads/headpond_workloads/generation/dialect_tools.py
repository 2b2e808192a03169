"""From the wire's tools and choices to generation's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond_workloads.generation.dialect_constraint import schema_text
from headpond_workloads.generation.items import Tool, ToolChoice, ToolName
from headpond_workloads.generation.schema_tools import (
    AllowedTools,
    FunctionChoiceParam,
    FunctionParam,
    ToolChoiceParam,
    ToolParam,
    ToolReference,
)

MAX_TOTAL_BYTES = 256 * 2**10
"""The most that the schemas of all tools of a request may come to."""

_NO_PARAMETERS: Mapping[str, JsonValue] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
"""Of a function that has none: it takes `{}` only."""

MODES: Mapping[str, ToolChoice] = {"auto": "auto", "none": "none", "required": "required"}


_OLDER_MODES = ("auto", "none")
_OLDER_REFUSAL = "must be none, auto, or a function's name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolbox:
    """What may be called, and whether it must be.

    Attributes:
        tools: The tools that the model is shown.
        choice: What `GenerationItem.tool_choice` becomes.
        parallel: Whether one turn may call several.
    """

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice | ToolName = "auto"
    parallel: bool = True


def read_tools(tools: Sequence[ToolParam]) -> tuple[Tool, ...]:
    """Return the tools of a chat.

    Raises:
        InvalidRequest: Names the field.
        UnsupportedParameter: A tool that is no function.
    """
    functions = []
    for number, tool in enumerate(tools):
        if tool.type != "function":
            raise UnsupportedParameter("only functions are supported", param=f"tools.{number}.type")
        if tool.function is None:
            raise InvalidRequest("a function is missing", param=f"tools.{number}.function")
        functions.append((tool.function, f"tools.{number}.function"))
    return read_functions(functions)


def read_functions(
    functions: Iterable[tuple[FunctionParam, str]], *, strict: bool = False
) -> tuple[Tool, ...]:
    """Return functions as tools.

    Args:
        functions: Each with the path of its field.
        strict: What a function is that does not say.

    Raises:
        InvalidRequest: A name comes twice, or parameters are no schema of an object.
    """
    tools: dict[str, Tool] = {}
    total_bytes = 0
    for function, path in functions:
        if function.name in tools:
            raise InvalidRequest(
                "another tool has this name; names must differ", param=f"{path}.name"
            )
        parameters = function.parameters or _NO_PARAMETERS
        param = f"{path}.parameters"
        if parameters.get("type", "object") != "object":
            raise InvalidRequest("must be a schema of type object", param=param)
        total_bytes += len(schema_text(parameters, param))
        if total_bytes > MAX_TOTAL_BYTES:
            raise InvalidRequest(
                f"the tools' schemas come to more than {MAX_TOTAL_BYTES} bytes", param=param
            )
        tools[function.name] = Tool(
            name=function.name,
            description=function.description,
            parameters=parameters,
            strict=strict if function.strict is None else function.strict,
        )
    return tuple(tools.values())


def toolbox(
    tools: tuple[Tool, ...], choice: ToolChoiceParam | None, parallel: bool | None
) -> Toolbox:
    """Return tools with what is to be done with them.

    Raises:
        InvalidRequest: The choice is none of the tools; names `tool_choice`.
        UnsupportedParameter: A choice of something that is no function.
    """
    wanted: ToolChoice | ToolName = "auto"
    if choice is not None:
        allowed = _allowed(choice)
        if allowed is not None:
            tools = _only(tools, allowed.tools)
            wanted = allowed.mode
        elif choice.type in MODES:
            wanted = MODES[choice.type]
        else:
            wanted = _named(tools, choice)
    if not tools:
        if wanted not in ("auto", "none"):
            raise InvalidRequest("this choice needs tools", param="tool_choice")
        return Toolbox()
    return Toolbox(tools=tools, choice=wanted, parallel=parallel is not False)


def older_toolbox(
    functions: Sequence[FunctionParam], choice: FunctionChoiceParam | None
) -> Toolbox:
    """Return functions in their older form, of which a turn calls at most one.

    Raises:
        InvalidRequest: Names the field.
    """
    tools = read_functions((each, f"functions.{at}") for at, each in enumerate(functions))
    wanted: ToolChoice | ToolName = "auto"
    if choice is not None and choice.name is not None:
        if choice.name in MODES:
            raise InvalidRequest("a function of this name cannot be chosen", param="function_call")
        wanted = _known(tools, choice.name, "function_call")
    elif choice is not None:
        if choice.mode not in _OLDER_MODES:
            raise InvalidRequest(_OLDER_REFUSAL, param="function_call")
        wanted = MODES[choice.mode]
    return Toolbox(tools=tools, choice=wanted, parallel=False) if tools else Toolbox()


def check_choice_of_none(choice: FunctionChoiceParam | None) -> None:
    """Refuse a choice in the older form where there are no functions.

    Raises:
        InvalidRequest: It is a function, or no choice at all; names `function_call`.
    """
    if choice is not None and choice.name is not None:
        raise InvalidRequest("this choice needs functions", param="function_call")
    if choice is not None and choice.mode not in _OLDER_MODES:
        raise InvalidRequest(_OLDER_REFUSAL, param="function_call")


def _allowed(choice: ToolChoiceParam) -> AllowedTools | None:
    if choice.type != "allowed_tools":
        return None
    if choice.allowed_tools is not None:
        return choice.allowed_tools
    if choice.mode is None or choice.tools is None:
        raise InvalidRequest("allowed_tools needs a mode and tools", param="tool_choice")
    return AllowedTools(mode=choice.mode, tools=choice.tools)


def _only(tools: Sequence[Tool], references: Sequence[ToolReference]) -> tuple[Tool, ...]:
    names = {_known(tools, each.called, "tool_choice") for each in references}
    if not names:
        raise InvalidRequest("no tool is allowed; use none instead", param="tool_choice")
    return tuple(tool for tool in tools if tool.name in names)


def _named(tools: Sequence[Tool], choice: ToolChoiceParam) -> ToolName:
    if choice.type != "function":
        raise UnsupportedParameter(
            "must be none, auto, required, or a function", param="tool_choice"
        )
    name = choice.function.name if choice.function is not None else choice.name
    if name in MODES:
        raise InvalidRequest("a tool of this name cannot be chosen by it", param="tool_choice")
    return _known(tools, name, "tool_choice")


def _known(tools: Sequence[Tool], name: str | None, param: str) -> ToolName:
    if name is None:
        raise InvalidRequest("the name of a function is missing", param=param)
    if not any(tool.name == name for tool in tools):
        raise InvalidRequest("there is no tool of this name", param=param)
    return ToolName(name)
