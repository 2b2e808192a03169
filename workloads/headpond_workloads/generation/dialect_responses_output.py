"""What a response puts out: items that begin, grow and end, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from headpond_workloads.generation.dialect_logprobs import entries
from headpond_workloads.generation.items import ChosenToken, TextDelta, ToolCallDelta
from headpond_workloads.generation.schema_responses import (
    ItemStatus,
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    ReasoningText,
)

ItemKind = Literal["message", "function_call", "reasoning"]

PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}


@dataclass(kw_only=True, slots=True)
class OpenItem:
    """An item of the output.

    Attributes:
        kind: What it is.
        item_id: Its identifier.
        index: Its place in the output.
        status: How far it is.
        call: The first delta of a call, which has its name.
        texts: What came of it so far, piece by piece.
        logprobs: Those of a message's tokens.
    """

    kind: ItemKind
    item_id: str
    index: int
    status: ItemStatus = "in_progress"
    call: ToolCallDelta | None = None
    texts: list[str] = field(default_factory=list)
    logprobs: list[ChosenToken] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All that came of it so far."""
        return "".join(self.texts)

    @property
    def name(self) -> str:
        """The name of the tool that is called."""
        return (self.call.name if self.call is not None else None) or ""

    def begun(self) -> OutputItem:
        """Return the item as it was when it began."""
        blank = OpenItem(kind=self.kind, item_id=self.item_id, index=self.index, call=self.call)
        return blank.wire()

    def wire(self) -> OutputItem:
        """Return the item as it is now."""
        is_blank = self.status == "in_progress" and not self.texts
        if self.kind == "reasoning":
            thought = [] if is_blank else [ReasoningText(text=self.text)]
            return OutputReasoning(id=self.item_id, status=self.status, content=thought)
        if self.kind == "message":
            said = [] if is_blank else [self.part()]
            return OutputMessage(id=self.item_id, status=self.status, content=said)
        call_id = self.call.call_id if self.call is not None else None
        return OutputCall(
            id=self.item_id,
            status=self.status,
            call_id=call_id or self.item_id,
            name=self.name,
            arguments=self.text,
        )

    def part(self) -> OutputText:
        """Return the only part of a message as it is now."""
        return OutputText(text=self.text, logprobs=entries(self.logprobs))


@dataclass(frozen=True, kw_only=True, slots=True)
class Happening:
    """Something that happened to an item: it began, grew by a text, or ended."""

    what: Literal["began", "grew", "ended"]
    item: OpenItem
    text: str = ""
    logprobs: Sequence[ChosenToken] = ()


class Output:
    """Folds deltas into items, of which only the last is open."""

    def __init__(self, request_id: str) -> None:
        """Name the items of a call."""
        self._request_id = request_id
        self._held: list[ChosenToken] = []
        self.items: list[OpenItem] = []

    def add(self, delta: TextDelta) -> list[Happening]:
        """Add what a step gave; return what happened."""
        happened: list[Happening] = []
        if delta.reasoning:
            happened += self._grow("reasoning", delta.reasoning)
        # Logprobs come with their tokens, and the text of a token may come later.
        self._held += delta.logprobs
        if delta.text:
            happened += self._say(delta.text)
        for call in delta.tool_calls:
            happened += self._call(call)
        if delta.reasoning or delta.tool_calls:
            self._held.clear()
        if delta.finish_reason is not None:
            happened += self._finish(is_whole=delta.finish_reason != "length")
        return happened

    def wire(self) -> list[OutputItem]:
        """Return the items as they are now."""
        return [item.wire() for item in self.items]

    def _open(self) -> OpenItem | None:
        last = self.items[-1] if self.items else None
        return last if last is not None and last.status == "in_progress" else None

    def _begin(self, kind: ItemKind, call: ToolCallDelta | None = None) -> list[Happening]:
        happened = self._end("completed")
        index = len(self.items)
        item_id = f"{PREFIXES[kind]}_{self._request_id}_{index}"
        item = OpenItem(kind=kind, item_id=item_id, index=index, call=call)
        self.items.append(item)
        return [*happened, Happening(what="began", item=item)]

    def _end(self, status: ItemStatus) -> list[Happening]:
        item = self._open()
        if item is None:
            return []
        item.status = status
        return [Happening(what="ended", item=item)]

    def _grow(self, kind: ItemKind, text: str) -> list[Happening]:
        item = self._open()
        happened = [] if item is not None and item.kind == kind else self._begin(kind)
        item = self.items[-1]
        item.texts.append(text)
        return [*happened, Happening(what="grew", item=item, text=text)]

    def _say(self, text: str) -> list[Happening]:
        *happened, grew = self._grow("message", text)
        logprobs, self._held = tuple(self._held), []
        grew.item.logprobs += logprobs
        return [*happened, Happening(what="grew", item=grew.item, text=text, logprobs=logprobs)]

    def _call(self, delta: ToolCallDelta) -> list[Happening]:
        item = self._open()
        is_same = item is not None and item.call is not None and item.call.index == delta.index
        happened = [] if is_same else self._begin("function_call", delta)
        if not delta.arguments:
            return happened
        item = self.items[-1]
        item.texts.append(delta.arguments)
        return [*happened, Happening(what="grew", item=item, text=delta.arguments)]

    def _finish(self, *, is_whole: bool) -> list[Happening]:
        happened: list[Happening] = []
        if not any(item.kind != "reasoning" for item in self.items) and is_whole:
            happened += self._begin("message")
        item = self._open()
        if self._held and item is not None and item.kind == "message":
            happened += self._say("")
        return [*happened, *self._end("completed" if is_whole else "incomplete")]
