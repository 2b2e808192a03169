"""Variables for the model's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue
from pydantic_core import to_json

from headpond.engine import Json
from headpond.errors import InvalidRequest
from headpond_workloads.generation.items import PromptEnd
from headpond_workloads.generation.schema_chat import ChatMessage

MAX_BYTES = 16 * 2**10


def prompt_end(
    messages: Sequence[ChatMessage], *, begins: bool | None, continues: bool | None
) -> PromptEnd:
    """Return where a conversation ends as the model reads it.

    Args:
        messages: The conversation.
        begins: Whether the answer's turn is begun (`add_generation_prompt`).
        continues: Whether the last turn is gone on with (`continue_final_message`).

    Raises:
        InvalidRequest: Both, or the last turn is not one of text.
    """
    param = "continue_final_message"
    if not continues:
        return "turn" if begins is False else "answer"
    if begins:
        raise InvalidRequest(f"{param} and add_generation_prompt cannot both be true", param=param)
    last = messages[-1]
    if last.tool_calls or last.function_call:
        raise InvalidRequest("the last message must be one of text", param=param)
    return "inside"


def template_options(
    effort: str | None, options: Mapping[str, JsonValue] | None
) -> Mapping[str, Json]:
    """Return the variables that a request sets.

    Raises:
        InvalidRequest: They are too long.
    """
    found: dict[str, Json] = {} if effort is None else {"reasoning_effort": effort}
    if not options:
        return found
    if len(to_json(dict(options))) > MAX_BYTES:
        raise InvalidRequest(
            f"must not be longer than {MAX_BYTES} bytes", param="chat_template_kwargs"
        )
    return found | dict(options)
