"""From the items of a response's input to generation's own messages."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond_workloads.generation.items import Message, ToolCall
from headpond_workloads.generation.schema_chat import ContentPart
from headpond_workloads.generation.schema_responses import InputItem

READABLE = frozenset({"input_text", "output_text", "text", "reasoning_text", "refusal"})


def read_input(items: Sequence[InputItem], instructions: str | None) -> tuple[Message, ...]:
    """Return the turns that an input holds, after the instructions.

    Raises:
        InvalidRequest: An item lacks what its type needs; names the field.
        UnsupportedParameter: An item, or a part of it, that is no text.
    """
    reader = _Reader()
    if instructions:
        reader.turns.append(Message(role="system", content=instructions))
    for at, item in enumerate(items):
        reader.read(item, f"input.{at}")
    reader.end_turn()
    return tuple(reader.turns)


class _Reader:
    """Puts items together: thoughts, text and calls in a row are one turn of the model."""

    def __init__(self) -> None:
        self.turns: list[Message] = []
        self._reasoning: list[str] = []
        self._content: str | None = None
        self._calls: list[ToolCall] = []
        self._known: set[str] = set()

    def read(self, item: InputItem, path: str) -> None:
        kind = item.type or "message"
        if kind == "message":
            self._message(item, path)
        elif kind == "function_call":
            self._call(item, path)
        elif kind == "function_call_output":
            self._answer(item, path)
        elif kind == "reasoning":
            self._thought(item, path)
        else:
            raise UnsupportedParameter(
                f"items of type {kind[:40]} are not supported", param=f"{path}.type"
            )

    def end_turn(self) -> None:
        """Add the model's turn, where one is open."""
        if self._content is not None or self._calls:
            self.turns.append(
                Message(
                    role="assistant",
                    content=self._content or "",
                    reasoning="".join(self._reasoning) or None,
                    tool_calls=tuple(self._calls),
                )
            )
        # What was thought before no answer at all has no turn that it belongs to.
        self._reasoning, self._content, self._calls = [], None, []

    def _message(self, item: InputItem, path: str) -> None:
        if item.role is None:
            raise InvalidRequest("a message needs a role", param=f"{path}.role")
        text = _text(item.content, f"{path}.content")
        if item.role == "assistant":
            if self._content is not None or self._calls:
                self.end_turn()
            self._content = text
            return
        self.end_turn()
        role = "system" if item.role == "developer" else item.role
        self.turns.append(Message(role=role, content=text))

    def _call(self, item: InputItem, path: str) -> None:
        call_id, name = _needed(item.call_id, f"{path}.call_id"), _needed(item.name, f"{path}.name")
        arguments = _needed(item.arguments, f"{path}.arguments")
        self._known.add(call_id)
        self._calls.append(ToolCall(call_id=call_id, name=name, arguments=arguments))

    def _answer(self, item: InputItem, path: str) -> None:
        call_id = _needed(item.call_id, f"{path}.call_id")
        if call_id not in self._known:
            raise InvalidRequest("no earlier item calls by this id", param=f"{path}.call_id")
        text = _text(item.output, f"{path}.output")
        self.end_turn()
        self.turns.append(Message(role="tool", content=text, tool_call_id=call_id))

    def _thought(self, item: InputItem, path: str) -> None:
        if self._content is not None or self._calls:
            self.end_turn()
        if item.content is not None:
            self._reasoning.append(_text(item.content, f"{path}.content"))


def _needed(value: str | None, param: str) -> str:
    if value is None:
        raise InvalidRequest("this type of item needs it", param=param)
    return value


def _text(parts: Sequence[ContentPart] | None, path: str) -> str:
    """Join the text parts with nothing in between, as if they had been one string."""
    if parts is None:
        raise InvalidRequest("must be a string, or an array of parts", param=path)
    texts = []
    for number, part in enumerate(parts):
        if part.type not in READABLE:
            raise UnsupportedParameter(
                "this model reads text only; use parts of type input_text",
                param=f"{path}.{number}",
            )
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise InvalidRequest("a text part needs text", param=f"{path}.{number}.text")
        texts.append(text)
    return "".join(texts)
