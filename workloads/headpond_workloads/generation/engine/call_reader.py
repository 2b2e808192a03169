"""Reading calls of tools out of text, character by character."""

from __future__ import annotations

import json
from enum import Enum, auto

from headpond_workloads.generation.engine.json_scan import SPACE, Expects, JsonScan
from headpond_workloads.generation.engine.tool_syntax import ToolSyntax
from headpond_workloads.generation.items import ToolCallDelta

_ARGUMENTS = frozenset({"arguments", "parameters"})


class _Call:
    """One call: an object with a name and arguments, in any order, and maybe more.

    Attributes:
        name: Once it is known.
        arguments: Their text so far, as far as it is not taken away.
        begun: Whether name and arguments are known, or begin to be.
        complete: Whether the object has ended.
        argued: Whether the last character is part of the arguments.
    """

    __slots__ = (
        "_has_arguments",
        "_key",
        "_next",
        "_raw",
        "_scan",
        "argued",
        "arguments",
        "complete",
        "name",
    )  # fmt: skip

    def __init__(self) -> None:
        self.name = ""
        self.arguments = ""
        self.argued = False
        self.complete = False
        self._has_arguments = False
        self._next = Expects.OPEN
        self._key: str | None = None
        self._raw = ""
        self._scan: JsonScan | None = None

    @property
    def begun(self) -> bool:
        return bool(self.name) and (self._has_arguments or self.complete)

    def take(self, char: str) -> bool:
        """Add a character; False when there is no call with it."""
        if self._scan is not None:
            if self._scan.take(char):
                self._keep(char)
                return True
            if not self._scan.complete or not self._close():
                return False
        self.argued = False
        return char in SPACE or self._between(char)

    def _between(self, char: str) -> bool:
        expects = self._next
        if expects is Expects.OPEN:
            self._next = Expects.KEY_OR_END
            return char == "{"
        if expects is Expects.COLON:
            self._next = Expects.VALUE
            return char == ":"
        if expects is Expects.VALUE:
            return self._open(char)
        if char == "}" and expects in {Expects.KEY_OR_END, Expects.COMMA_OR_END}:
            return self._finish()
        if expects is Expects.COMMA_OR_END:
            self._next = Expects.KEY
            return char == ","
        return char == '"' and expects is not Expects.NOTHING and self._open(char)

    def _open(self, char: str) -> bool:
        """Begin a key or a value."""
        self._scan, self._raw = JsonScan(), ""
        if self._key in _ARGUMENTS:
            if self._has_arguments or char not in '{"n':
                return False
            self.argued = self._has_arguments = char == "{"
        taken = self._scan.take(char)
        self._keep(char)
        return taken

    def _keep(self, char: str) -> None:
        if self.argued:
            self.arguments += char
        else:
            self._raw += char

    def _close(self) -> bool:
        """End a key or a value; False when it is none that a call may have."""
        self._scan = None
        if self._key is None:
            self._key = json.loads(self._raw)
            self._next = Expects.COLON
            return True
        key, self._key = self._key, None
        self._next = Expects.COMMA_OR_END
        if key == "name":
            name = json.loads(self._raw) if self._raw[0] == '"' and not self.name else ""
            self.name = name if _is_text(name) else ""
            return bool(self.name)
        if key in _ARGUMENTS and not self.argued:
            self.arguments = "{}" if self._raw == "null" else json.loads(self._raw)
            self._has_arguments = _is_object(self.arguments)
            return self._has_arguments
        return True

    def _finish(self) -> bool:
        self._next = Expects.NOTHING
        self.complete = True
        if not self._has_arguments:
            self.arguments = "{}"
        return bool(self.name)


class Ending(Enum):
    """Where the text between marks stands."""

    OPEN = auto()
    OVER = auto()
    BROKEN = auto()


class _Place(Enum):
    FIRST = auto()
    FIRST_OR_END = auto()
    CALL = auto()
    BETWEEN = auto()
    NEXT = auto()
    END = auto()


class CallBlock:
    """What follows the mark that calls begin with: one call, or a list of calls.

    Attributes:
        held: Text from the mark on that is in no delta; the caller's when it is no call.
        tail: Text behind it that may be part of the closing mark.
        begun: How many calls began.
        complete: How many calls are complete.
    """

    def __init__(self, syntax: ToolSyntax, mark: str, first_index: int) -> None:
        """Begin behind `mark`; the first call of the block has `first_index`."""
        self.held = mark
        self.tail = ""
        self.begun = 0
        self.complete = 0
        self._syntax = syntax
        self._first_index = first_index
        self._place = _Place.FIRST
        self._listed = False
        self._call = _Call()
        self._announced = False
        self._deltas: list[ToolCallDelta] = []

    @property
    def unread(self) -> bool:
        """Whether the text held, if it ends here, was about to be a call."""
        if self._place is _Place.CALL:
            return not self._call.begun
        return self._place in {_Place.FIRST, _Place.FIRST_OR_END}

    def take(self, char: str) -> Ending:
        """Add a character, unless there can't be calls with it: then it is not taken."""
        if self._place is _Place.CALL:
            return self._in_call(char)
        if self._place is _Place.END:
            return self._at_end(char)
        return self._between(char)

    def _between(self, char: str) -> Ending:
        """Take a character that is outside of calls, and not behind all of them."""
        if char == "{" and self._place is not _Place.BETWEEN:
            self._call, self._place, self._announced = _Call(), _Place.CALL, False
            return self._in_call(char)
        if char == "[" and self._place is _Place.FIRST:
            self._listed, self._place = True, _Place.FIRST_OR_END
        elif char == "," and self._place is _Place.BETWEEN:
            self._place = _Place.NEXT
        elif char == "]" and self._place in {_Place.FIRST_OR_END, _Place.BETWEEN}:
            return self._close()
        elif char not in SPACE:
            return Ending.BROKEN
        self.held += char
        return Ending.OPEN

    def deltas(self) -> list[ToolCallDelta]:
        """Take what has become certain since the last time."""
        self._flush()
        deltas, self._deltas = self._deltas, []
        return deltas

    def _in_call(self, char: str) -> Ending:
        call = self._call
        begun = call.begun
        if not call.take(char):
            return Ending.BROKEN
        self.held += char
        if call.begun and (call.argued or not begun):
            self.held = ""
        self.begun += call.begun and not begun
        if not call.complete:
            return Ending.OPEN
        self._flush()
        self.complete += 1
        self.held = ""
        if self._listed:
            self._place = _Place.BETWEEN
            return Ending.OPEN
        return self._close()

    def _close(self) -> Ending:
        self.held = ""
        self._place = _Place.END
        return Ending.OPEN if self._syntax.end else Ending.OVER

    def _at_end(self, char: str) -> Ending:
        if not self.tail and char in SPACE:
            self.held += char
            return Ending.OPEN
        end = self._syntax.end
        if char != end[len(self.tail)]:
            return Ending.BROKEN
        self.tail += char
        return Ending.OVER if self.tail == end else Ending.OPEN

    def _flush(self) -> None:
        call = self._call
        if not call.begun:
            return
        index = self._first_index + self.begun - 1
        if not self._announced:
            self._announced = True
            delta = ToolCallDelta(
                index=index,
                call_id=self._syntax.new_id(),
                name=call.name,
                arguments=call.arguments,
            )
        elif call.arguments:
            delta = ToolCallDelta(index=index, arguments=call.arguments)
        else:
            return
        call.arguments = ""
        self._deltas.append(delta)


def _is_text(value: str) -> bool:
    """Return whether it is some text, and all of it can be encoded."""
    try:
        return bool(value.encode())
    except UnicodeEncodeError:
        return False


def _is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    scan = JsonScan()
    stripped = text.strip(SPACE)
    return (
        stripped[:1] == "{" and _is_text(text) and all(map(scan.take, stripped)) and scan.complete
    )
