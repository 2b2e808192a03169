"""From generated text to its parts: what is said, what is reasoned, what is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headpond_workloads.generation.engine.call_reader import CallBlock, Ending
from headpond_workloads.generation.engine.tool_syntax import ToolSyntax
from headpond_workloads.generation.items import ToolCallDelta


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """How a model marks its reasoning.

    Attributes:
        begin: What stands before it.
        end: What stands behind it.
        starts_inside: Whether every answer begins inside of it.
    """

    begin: str
    end: str
    starts_inside: bool = False


@dataclass(slots=True)
class Parts:
    """What a piece of text came to.

    Attributes:
        text: What is said.
        reasoning: What is reasoned.
        calls: What was added to calls of tools.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallDelta, ...] = ()


class Reader:
    """Reads one output as it comes; the split into pieces has no influence.

    Text that may become a mark is held until it is one or is none. A call is given out from
    the first character of its arguments on, once its name is known. What looks like a call
    and is none is text, marks and all; so is what follows where a call breaks off. White
    space beside marks says nothing.

    Attributes:
        calls: How many calls began.
        full: Whether there are as many calls as there may be; what follows is left out.
        marks: What this reader looks for; control tokens among them have to be spelled out.
    """

    def __init__(
        self,
        *,
        syntax: ToolSyntax | None = None,
        reasoning: Marks | None = None,
        most_calls: int | None = None,
        exact: bool = False,
    ) -> None:
        """Start at the beginning of an output.

        Args:
            syntax: How calls are written; None looks for none.
            reasoning: How reasoning is marked; None looks for none.
            most_calls: After how many calls the output ends.
            exact: Keep white space behind reasoning: the text is held to a form.
        """
        self._syntax = syntax
        self._reasoning = reasoning
        self._most_calls = most_calls
        self._exact = exact
        begins = [syntax.begin] if syntax else []
        self._openings = [*begins, reasoning.begin] if reasoning else begins
        ends = {reasoning.end} if reasoning else set()
        self.marks = frozenset(self._openings) | ends | ({syntax.end} if syntax else set())
        self.reasons = reasoning is not None and reasoning.starts_inside
        self.calls = 0
        self.full = False
        self._complete = 0
        self._block: CallBlock | None = None
        self._held = ""
        self._gap = ""
        self._said = False
        self._trims = self.reasons

    def push(self, text: str) -> Parts:
        """Add text and return what is now certain."""
        parts = Parts()
        self._held += text
        while self._held and not self.full and self._advance(parts):
            pass
        if self._block is not None:
            self._take_deltas(self._block, parts)
        return parts

    def finish(self) -> Parts:
        """Return the rest."""
        parts = Parts()
        if self.full:
            return parts
        held, self._held = self._held, ""
        block, self._block = self._block, None
        if block is not None:
            held = f"{block.held}{block.tail}" if block.unread else ""
        elif self._bare and self.calls and not held.strip(_SEPARATORS):
            held = ""
        self._give(held, parts)
        if not self.calls or self.reasons:
            self._give_gap(parts)
        return parts

    @property
    def _bare(self) -> bool:
        """Whether a call may begin here without a mark."""
        return self._syntax is not None and self._syntax.bare and not self._said

    def _advance(self, parts: Parts) -> bool:
        """Read on; False when more text is needed."""
        if self._block is not None:
            return self._in_block(self._block, parts)
        if self.reasons and self._reasoning is not None:
            return self._to_mark([self._reasoning.end], parts)
        if self._bare:
            call = self._held.lstrip(_SEPARATORS if self.calls else None)
            if not call:
                return False
            if call[0] == "{":
                skipped = self._held[: len(self._held) - len(call)]
                self._held = call
                self._begin_block(skipped)
                return True
        return self._to_mark(self._openings, parts)

    def _to_mark(self, marks: Sequence[str], parts: Parts) -> bool:
        held = self._held
        found = [(at, mark) for mark in marks if (at := held.find(mark)) >= 0]
        if not found:
            keep = _partial(held, marks)
            self._held = held[len(held) - keep :]
            self._give(held[: len(held) - keep], parts)
            return False
        at, mark = min(found)
        self._held = held[at + len(mark) :]
        self._give(held[:at], parts)
        if self.reasons:
            self.reasons, self._gap, self._trims = False, "", not self._exact
        elif self._reasoning is not None and mark == self._reasoning.begin:
            self._give_gap(parts)
            self.reasons = self._trims = True
        else:
            self._begin_block(mark)
        return True

    def _begin_block(self, mark: str) -> None:
        if self._syntax is not None:
            self._block = CallBlock(self._syntax, mark, self.calls)

    def _in_block(self, block: CallBlock, parts: Parts) -> bool:
        for at, char in enumerate(self._held):
            ending = block.take(char)
            count = self._complete + block.complete
            if self._most_calls is not None and count >= self._most_calls:
                ending, self.full = Ending.OVER, True
            if ending is Ending.OPEN:
                continue
            self._take_deltas(block, parts)
            self._complete, self._block = count, None
            broken = ending is Ending.BROKEN
            self._held = block.tail + self._held[at:] if broken else self._held[at + 1 :]
            if broken:
                self.full = self._most_calls is not None and self.calls >= self._most_calls
                self._give(block.held, parts)
            return True
        self._held = ""
        return False

    def _take_deltas(self, block: CallBlock, parts: Parts) -> None:
        deltas = block.deltas()
        if deltas:
            self._gap = ""
            self.calls += sum(delta.name is not None for delta in deltas)
            parts.calls = (*parts.calls, *deltas)

    def _give(self, text: str, parts: Parts) -> None:
        """Give text out, but for white space that may turn out to say nothing."""
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        if self._syntax is None and not self.reasons:
            parts.text += text
            return
        certain = f"{self._gap}{text}".rstrip() if text.strip() else ""
        self._gap = f"{self._gap}{text}"[len(certain) :]
        if self.reasons:
            parts.reasoning += certain
        else:
            parts.text += certain
            self._said = self._said or bool(certain)

    def _give_gap(self, parts: Parts) -> None:
        gap, self._gap = self._gap, ""
        if self.reasons:
            parts.reasoning += gap
        else:
            parts.text += gap


_SEPARATORS = " \t\r\n;"


def _partial(text: str, marks: Sequence[str]) -> int:
    """Return how many of the last characters may be the beginning of a mark."""
    return max(
        (
            size
            for mark in marks
            for size in range(1, min(len(mark), len(text) + 1))
            if text.endswith(mark[:size])
        ),
        default=0,
    )
