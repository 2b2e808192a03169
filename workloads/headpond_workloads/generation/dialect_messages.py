"""From the turns of a chat to generation's own messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond_workloads.generation.items import Message, ToolCall
from headpond_workloads.generation.schema_chat import ChatMessage
from headpond_workloads.generation.schema_tools import ToolCallParam


def read_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Return the turns of a conversation.

    Raises:
        InvalidRequest: A turn lacks what its role needs, or has what it must not; names
            the field.
        UnsupportedParameter: A turn holds something that is no text.
    """
    reader = _Reader()
    return tuple(reader.read(message, f"messages.{at}") for at, message in enumerate(messages))


class _Reader:
    """Reads turn after turn, and knows which calls wait for an answer."""

    def __init__(self) -> None:
        self._calls: set[str] = set()
        self._older_id: str | None = None

    def read(self, message: ChatMessage, path: str) -> Message:
        """Return one turn; `path` leads to it in the body."""
        if message.audio:
            raise UnsupportedParameter("audio is not supported", param=f"{path}.audio")
        if message.role == "assistant":
            return self._assistant(message, path)
        for field in ("tool_calls", "function_call"):
            if getattr(message, field):
                raise InvalidRequest(f"only assistants have {field}", param=f"{path}.{field}")
        if message.role in ("tool", "function"):
            return self._answer(message, path)
        # Templates know `system` alone; `developer` is the newer word for the same turn.
        role = "system" if message.role == "developer" else message.role
        return Message(role=role, content=_needed_text(message, path), name=message.name)

    def _assistant(self, message: ChatMessage, path: str) -> Message:
        if message.tool_calls and message.function_call:
            raise InvalidRequest(
                "tool_calls and function_call cannot both be set", param=f"{path}.function_call"
            )
        calls = tuple(self._tool_calls(message.tool_calls or (), path))
        if message.function_call is not None:
            # The older form has no identifiers; its answer follows at once.
            self._older_id = f"call_{path.removeprefix('messages.')}"
            call = message.function_call
            calls = (ToolCall(call_id=self._older_id, name=call.name, arguments=call.arguments),)
        if message.content is None and message.refusal:
            content = message.refusal
        else:
            content = _text(message, path) if calls else _needed_text(message, path)
        return Message(
            role="assistant",
            content=content,
            name=message.name,
            reasoning=message.reasoning_content or message.reasoning or None,
            tool_calls=calls,
        )

    def _tool_calls(self, calls: Sequence[ToolCallParam], path: str) -> Iterable[ToolCall]:
        for number, call in enumerate(calls):
            inner = f"{path}.tool_calls.{number}"
            if call.type != "function":
                raise UnsupportedParameter("only functions are supported", param=f"{inner}.type")
            if call.function is None:
                raise InvalidRequest("a function is missing", param=f"{inner}.function")
            self._calls.add(call.id)
            yield ToolCall(
                call_id=call.id, name=call.function.name, arguments=call.function.arguments
            )

    def _answer(self, message: ChatMessage, path: str) -> Message:
        """Return what a tool said, which must have been asked for."""
        if message.role == "function":
            if self._older_id is None:
                raise InvalidRequest("no function_call precedes this turn", param=f"{path}.role")
            call_id = self._older_id
        elif message.tool_call_id is None:
            raise InvalidRequest("a tool's turn needs it", param=f"{path}.tool_call_id")
        elif message.tool_call_id not in self._calls:
            raise InvalidRequest(
                "no earlier turn has a tool call of this id", param=f"{path}.tool_call_id"
            )
        else:
            call_id = message.tool_call_id
        return Message(
            role="tool",
            content=_needed_text(message, path),
            name=message.name,
            tool_call_id=call_id,
        )


def _needed_text(message: ChatMessage, path: str) -> str:
    if message.content is None:
        raise InvalidRequest("content must be a string or text parts", param=f"{path}.content")
    return _text(message, path)


def _text(message: ChatMessage, path: str) -> str:
    """Join the text parts with nothing in between, as if they had been one string."""
    texts = []
    for number, part in enumerate(message.content or ()):
        if part.type not in ("text", "refusal"):
            raise UnsupportedParameter(
                "this model reads text only; use parts of type text",
                param=f"{path}.content.{number}",
            )
        text = part.text if part.type == "text" else part.refusal
        if text is None:
            raise InvalidRequest(
                f"a {part.type} part needs {part.type}",
                param=f"{path}.content.{number}.{part.type}",
            )
        texts.append(text)
    return "".join(texts)
