"""From generated text to its parts: what is said, what is reasoned, what is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headpond_workloads.generation.engine import tool_syntax
from headpond_workloads.generation.items import ToolCallDelta


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """How a model marks its reasoning.

    Attributes:
        begin: What stands before it.
        end: What stands behind it.
        starts_inside: Whether the prompt ends inside of it already.
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
        calls: Calls that are complete.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallDelta, ...] = ()


class Reader:
    """Reads one output as it comes; the split into pieces has no influence.

    Text that may become a mark is held until it is one or is none. A call is given out when
    it is complete. What looks like a call and can't be read is text, marks and all.
    """

    __slots__ = ("_gap", "_held", "_inside", "_marks", "_tools", "calls")

    def __init__(self, *, tools: bool, reasoning: Marks | None) -> None:
        """Watch for calls of tools, and for reasoning."""
        self._tools = tools
        self._marks = reasoning
        self._inside = reasoning.end if reasoning and reasoning.starts_inside else ""
        self._held = ""
        self._gap = ""
        self.calls = 0

    @property
    def reasons(self) -> bool:
        """Whether the text so far ends in reasoning."""
        return self._marks is not None and self._inside == self._marks.end

    def push(self, text: str) -> Parts:
        """Add text and return what is now certain."""
        parts = Parts()
        self._held += text
        while self._advance(parts):
            pass
        return parts

    def finish(self) -> Parts:
        """Return the rest: of a call without an end, what can be read."""
        parts = Parts()
        held, self._held = self._held, ""
        if self._inside == tool_syntax.END:
            self._close_call(held, parts, mark="")
        else:
            self._give(held, parts)
        return parts

    def _advance(self, parts: Parts) -> bool:
        """Read up to the next mark; False when more text is needed."""
        marks = [self._inside] if self._inside else self._openings()
        at, mark = min(
            ((found, mark) for mark in marks if (found := self._held.find(mark)) >= 0),
            default=(-1, ""),
        )
        if at < 0:
            if self._inside != tool_syntax.END:
                keep = _partial(self._held, marks)
                certain, self._held = self._held[: len(self._held) - keep], self._held[-keep:]
                self._held = self._held if keep else ""
                self._give(certain, parts)
            return False
        before, self._held = self._held[:at], self._held[at + len(mark) :]
        if self._inside == tool_syntax.END:
            self._close_call(before, parts, mark=mark)
            self._inside = ""
        else:
            self._give(before, parts)
            self._inside = "" if self._inside else self._closing(mark)
        return True

    def _openings(self) -> list[str]:
        tools = [tool_syntax.BEGIN] if self._tools else []
        return tools if self._marks is None else [*tools, self._marks.begin]

    def _closing(self, mark: str) -> str:
        if self._marks is not None and mark == self._marks.begin:
            return self._marks.end
        return tool_syntax.END

    def _give(self, text: str, parts: Parts) -> None:
        if self.reasons:
            parts.reasoning += text
        elif not self.calls:
            parts.text += text
        else:
            # White space between calls and behind the last one says nothing.
            said = self._gap + text
            certain = said.rstrip()
            parts.text += certain
            self._gap = said[len(certain) :]

    def _close_call(self, block: str, parts: Parts, *, mark: str) -> None:
        calls = tool_syntax.parsed(block, self.calls)
        if calls is None:
            self._give(f"{tool_syntax.BEGIN}{block}{mark}", parts)
        else:
            self._gap = ""
            self.calls += len(calls)
            parts.calls = (*parts.calls, *calls)


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
