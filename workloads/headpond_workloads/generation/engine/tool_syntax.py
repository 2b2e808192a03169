"""How models of the Hermes family write calls of tools, and how they are told of tools.

A call is JSON between `<tool_call>` and `</tool_call>`: an object with `name` and
`arguments`, or a list of such objects. Qwen, Hermes, SmolLM2 and many fine-tunes write it so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from secrets import token_hex

from headpond.engine import Json
from headpond_workloads.generation.items import Constraint, Message, Tool, ToolCallDelta

BEGIN = "<tool_call>"
END = "</tool_call>"

_INSTRUCTIONS = """You can call functions. The functions you can call are:
<tools>{tools}</tools>
To call functions, answer with nothing but their names and arguments, in this form:
<tool_call>
{{"name": "the function's name", "arguments": {{"an argument": "its value"}}}}
</tool_call>"""


def parsed(block: str, first_index: int) -> list[ToolCallDelta] | None:
    """Read what stands between the marks; None when it is no call.

    Args:
        block: The text.
        first_index: The index of its first call in this turn.
    """
    try:
        value = json.loads(block)
    except ValueError:
        return None
    calls = value if isinstance(value, list) else [value]
    if not calls or not all(_is_call(call) for call in calls):
        return None
    return [
        ToolCallDelta(
            index=first_index + at,
            call_id=f"call_{token_hex(12)}",
            name=call["name"],
            arguments=_arguments(call.get("arguments")),
        )
        for at, call in enumerate(calls)
    ]


def must_call(tools: Sequence[Tool], name: str | None, *, parallel: bool) -> Constraint:
    """Return the constraint under which an output is calls of tools and nothing else.

    Args:
        tools: What can be called.
        name: The one that must be, or None for any.
        parallel: Whether there may be several calls.
    """
    chosen = [tool for tool in tools if name in {None, tool.name}]
    rules = [f"call_{at}: %json {json.dumps(_schema(tool))}" for at, tool in enumerate(chosen)]
    calls = " | ".join(f"call_{at}" for at in range(len(chosen)))
    more = ' ("\\n" block)*' if parallel and name is None else ""
    grammar = [
        f"start: block{more}",
        f'block: "{BEGIN}\\n" ({calls}) "\\n{END}"',
        *rules,
    ]
    return Constraint(kind="lark", source="\n".join(grammar), param="tools")


def told_of_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Put tools, calls and results into words, for a template that knows none of them."""
    told = [_in_words(message) for message in messages]
    if not tools:
        return told
    instructions = _INSTRUCTIONS.format(tools=json.dumps([described(tool) for tool in tools]))
    if told and told[0].role == "system":
        first = told.pop(0)
        instructions = f"{first.content}\n\n{instructions}"
    return [Message(role="system", content=instructions), *told]


def described(tool: Tool) -> dict[str, Json]:
    """Return a tool as chat templates expect it."""
    function: dict[str, Json] = {"name": tool.name, "parameters": dict(tool.parameters)}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _in_words(message: Message) -> Message:
    if message.role == "tool":
        return Message(role="user", content=f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    calls = [
        f'{BEGIN}\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n{END}'
        for call in message.tool_calls
    ]
    words = [message.content, *calls] if message.content else calls
    return Message(role=message.role, content="\n".join(words), name=message.name)


def _is_call(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def _arguments(value: object) -> str:
    return json.dumps({} if value is None else value, ensure_ascii=False)


def _schema(tool: Tool) -> dict[str, Json]:
    """Return the schema of a call; definitions move to its root, where references look."""
    parameters = dict(tool.parameters) or {"type": "object"}
    schema: dict[str, Json] = {
        key: parameters.pop(key) for key in ("$defs", "definitions") if key in parameters
    }
    return schema | {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
