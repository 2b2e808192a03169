"""Streamed conversations: what each step adds to a choice, as chunks."""

from __future__ import annotations

from collections.abc import Sequence

from headpond_workloads.generation.chunks import SLOT, ChunkFrame, ChunkTemplate
from headpond_workloads.generation.dialect_logprobs import entries
from headpond_workloads.generation.items import FinishReason, TextDelta, ToolCallDelta
from headpond_workloads.generation.schema_chat import (
    ChatFinishReason,
    ChoiceLogprobs,
    ChunkChoice,
    Delta,
)
from headpond_workloads.generation.schema_tools import FunctionCallChunk, ToolCallChunk


class ChatChunks:
    """The chunks of one streamed conversation: role first, reason last, both once.

    Choices begin in the order of their indexes, whichever has text first: OpenAI's own
    accumulator (`openai.lib.streaming.chat`) fails on a choice that skips another.
    """

    def __init__(self, frame: ChunkFrame, *, older: bool, by_id: bool) -> None:
        """Begin with no choice.

        Args:
            frame: Of every chunk.
            older: Whether calls are functions, not tools.
            by_id: Whether tokens read as their IDs in log-probabilities.
        """
        self._frame = frame
        self._older = older
        self._by_id = by_id
        self._begun = 0
        self._templates: dict[tuple[int, bool], ChunkTemplate] = {}

    def chunks(self, index: int, delta: TextDelta) -> list[str]:
        """Render what a step added to a choice, and after that its end."""
        thinks = bool(delta.reasoning)
        is_plain = not (delta.logprobs or delta.tool_calls or (thinks and delta.text))
        if is_plain and not (delta.text or thinks or delta.finish_reason):
            return []
        rendered = []
        begins = self._begun <= index
        while self._begun < index:
            rendered.append(self._begin(TextDelta(text="")))
        if begins:
            rendered.append(self._begin(delta))
        elif not is_plain:
            rendered.append(self._more(index, self._delta(delta), delta))
        elif delta.text or thinks:
            rendered.append(self._template(index, thinks).render(delta.text or delta.reasoning))
        if delta.finish_reason is not None:
            rendered.append(self._end(index, delta.finish_reason))
        return rendered

    def _begin(self, delta: TextDelta) -> str:
        """Render the first chunk of the next choice."""
        index = self._begun
        self._begun += 1
        first = self._delta(delta)
        first.role = "assistant"
        first.refusal = None
        if not first.content:
            first.content = None if delta.reasoning or delta.tool_calls else ""
        return self._more(index, first, delta)

    def _template(self, index: int, thinks: bool) -> ChunkTemplate:
        """Return what a choice's chunks look like that add text, or reasoning, alone."""
        template = self._templates.get((index, thinks))
        if template is None:
            delta = Delta(reasoning_content=SLOT) if thinks else Delta(content=SLOT)
            plain = ChunkChoice(index=index, delta=delta, logprobs=None, finish_reason=None)
            template = self._templates[index, thinks] = self._frame.template(plain)
        return template

    def _more(self, index: int, delta: Delta, step: TextDelta) -> str:
        logprobs = None
        if step.logprobs:
            logprobs = ChoiceLogprobs(
                content=entries(step.logprobs, by_id=self._by_id), refusal=None
            )
        return self._frame.choice(
            ChunkChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=None)
        )

    def _end(self, index: int, reason: FinishReason) -> str:
        told = chat_reason(reason, older=self._older)
        return self._frame.choice(
            ChunkChoice(index=index, delta=Delta(), logprobs=None, finish_reason=told)
        )

    def _delta(self, step: TextDelta) -> Delta:
        """Return what a step said; what it did not say is not set."""
        delta = Delta()
        if step.reasoning:
            delta.reasoning_content = step.reasoning
        if step.text or not (step.reasoning or step.tool_calls):
            delta.content = step.text
        if step.tool_calls and self._older:
            delta.function_call = _older_function(step.tool_calls)
        elif step.tool_calls:
            delta.tool_calls = [_call(call) for call in step.tool_calls]
        return delta


def chat_reason(reason: FinishReason, *, older: bool) -> ChatFinishReason:
    """Return why a choice ended, in the words of the form that was asked in."""
    return "function_call" if older and reason == "tool_calls" else reason


def _call(call: ToolCallDelta) -> ToolCallChunk:
    if call.call_id is None:
        return ToolCallChunk(index=call.index, function=_function(call))
    return ToolCallChunk(
        index=call.index, id=call.call_id, type="function", function=_function(call)
    )


def _function(call: ToolCallDelta) -> FunctionCallChunk:
    if call.name is None:
        return FunctionCallChunk(arguments=call.arguments)
    return FunctionCallChunk(name=call.name, arguments=call.arguments)


def _older_function(calls: Sequence[ToolCallDelta]) -> FunctionCallChunk:
    """Return what a step added to the only call that the older form can tell."""
    own = [call for call in calls if call.index == 0]
    name = next((call.name for call in own if call.name is not None), None)
    arguments = "".join(call.arguments for call in own)
    return _function(ToolCallDelta(index=0, name=name, arguments=arguments))
