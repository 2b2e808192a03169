"""Telling a model of tools in words, where its chat template knows of none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headpond.engine import Json
from headpond_workloads.generation.engine.tool_syntax import ToolSyntax
from headpond_workloads.generation.items import Message, Tool, ToolCall

TOOLS = "{{ tools }}"
"""Where a bundle's instructions have the tools, as a JSON list."""

_FORM = "{{ form }}"
_INSTRUCTIONS = f"""You can call functions. The functions you can call are:
<tools>{TOOLS}</tools>
To call a function, answer with nothing but its name and arguments, in this form:
{_FORM}"""

_EXAMPLE = ToolCall(
    call_id="", name="the function's name", arguments='{"an argument": "its value"}'
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolWords:
    """How a model is told of tools, calls and results.

    Attributes:
        syntax: How it writes calls.
        instructions: What tells it of tools, with `TOOLS` in it; None takes plain words.
    """

    syntax: ToolSyntax
    instructions: str | None = None

    def tell(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        """Put tools, calls and results into the contents of messages."""
        told = [self._in_words(message) for message in messages]
        if not tools:
            return told
        listed = json.dumps([described(tool) for tool in tools], ensure_ascii=False)
        instructions = self._instructions().replace(TOOLS, listed)
        if told and told[0].role == "system":
            instructions = f"{told.pop(0).content}\n\n{instructions}"
        return [Message(role="system", content=instructions), *told]

    def _instructions(self) -> str:
        if self.instructions is not None:
            return self.instructions
        return _INSTRUCTIONS.replace(_FORM, self.syntax.written([_EXAMPLE]))

    def _in_words(self, message: Message) -> Message:
        if message.role == "tool":
            response = f"<tool_response>\n{message.content}\n</tool_response>"
            return Message(role="user", content=response)
        if not message.tool_calls:
            return message
        calls = self.syntax.written(message.tool_calls)
        content = f"{message.content}\n{calls}" if message.content else calls
        return replace(message, content=content, tool_calls=())


def described(tool: Tool) -> dict[str, Json]:
    """Return a tool as chat templates expect it."""
    function: dict[str, Json] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = dict(tool.parameters)
    return {"type": "function", "function": function}
