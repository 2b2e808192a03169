"""Conversations in the shape that chat templates take."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from headpond.engine import Json
from headpond.errors import InvalidRequest
from headpond_workloads.generation.engine.tool_syntax import ToolSyntax
from headpond_workloads.generation.items import Message, Prompt

_OWN_VARIABLES = frozenset(
    {
        *("messages", "tools", "documents", "bos_token", "eos_token", "add_generation_prompt"),
        # Settings that transformers takes beside the variables: nobody should think that they
        # had any effect here.
        *("self", "conversation", "chat_template", "continue_final_message", "tokenize"),
        *("sanitize_control_tokens", "padding", "truncation", "max_length", "return_tensors"),
        *("return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs", "kwargs"),
    }
)
"""Variables and settings of a template that a request can't set."""


def turn(message: Message, syntax: ToolSyntax | None) -> dict[str, Json]:
    """Return one turn.

    Args:
        message: The turn.
        syntax: Knows the form of the calls' identifiers.
    """
    shaped: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.name is not None:
        shaped["name"] = message.name
    if message.reasoning is not None:
        # Both names are in use among templates.
        shaped["reasoning_content"] = shaped["thinking"] = message.reasoning
    if message.tool_call_id is not None:
        shaped["tool_call_id"] = _fitting(message.tool_call_id, syntax)
    if message.tool_calls:
        shaped["tool_calls"] = [
            {
                "id": _fitting(call.call_id, syntax),
                "type": "function",
                "function": {"name": call.name, "arguments": _loaded(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return shaped


def options(prompt: Prompt) -> dict[str, Json]:
    """Return further variables of the template; none that are set for it anyway.

    Raises:
        InvalidRequest: Names the first such variable.
    """
    for name in prompt.template_options:
        if name in _OWN_VARIABLES or not name.isidentifier():
            raise InvalidRequest(
                f"chat_template_kwargs can't set {name!r}", param="chat_template_kwargs"
            )
    return dict(prompt.template_options)


def check_keys(values: Iterable[Json], control: Iterable[str], param: str) -> None:
    """Refuse keys that spell a control token: in a key, nothing keeps it from becoming one.

    Raises:
        InvalidRequest: Names the token.
    """
    tokens = [token for token in control if token]
    for key in (key for value in values for key in _keys(value)):
        for token in tokens:
            if token in key:
                raise InvalidRequest(f"no key may hold the control token {token!r}", param=param)


def _keys(value: Json) -> Iterator[str]:
    """Return all keys within a value, at any depth."""
    left = [value]
    while left:
        inner = left.pop()
        if isinstance(inner, Mapping):
            yield from inner
            left += inner.values()
        elif isinstance(inner, list):
            left += inner


def _fitting(call_id: str, syntax: ToolSyntax | None) -> str:
    return call_id if syntax is None else syntax.fitting_id(call_id)


def _loaded(arguments: str) -> Json:
    """Return arguments as templates want them: an object, or the text when it is none."""
    try:
        value: Json = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value
