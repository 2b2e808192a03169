"""Following JSON text character by character (RFC 8259), to know at once when it is none."""

from __future__ import annotations

from enum import Enum, auto

SPACE = " \t\n\r"

_ESCAPED = frozenset('"\\/bfnrt')
_HEX = frozenset("0123456789abcdefABCDEF")
_DIGITS = frozenset("0123456789")
_LITERALS = {"t": "true", "f": "false", "n": "null"}


class _Expects(Enum):
    VALUE = auto()
    VALUE_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()
    NOTHING = auto()


class _Number(Enum):
    SIGN = auto()
    ZERO = auto()
    INTEGER = auto()
    POINT = auto()
    FRACTION = auto()
    EXPONENT = auto()
    EXPONENT_SIGN = auto()
    POWER = auto()


_WHOLE_NUMBERS = frozenset({_Number.ZERO, _Number.INTEGER, _Number.FRACTION, _Number.POWER})

_NUMBER_STEPS = {
    _Number.SIGN: {"0": _Number.ZERO, "1-9": _Number.INTEGER},
    _Number.ZERO: {".": _Number.POINT, "e": _Number.EXPONENT},
    _Number.INTEGER: {
        "0": _Number.INTEGER,
        "1-9": _Number.INTEGER,
        ".": _Number.POINT,
        "e": _Number.EXPONENT,
    },
    _Number.POINT: {"0": _Number.FRACTION, "1-9": _Number.FRACTION},
    _Number.FRACTION: {"0": _Number.FRACTION, "1-9": _Number.FRACTION, "e": _Number.EXPONENT},
    _Number.EXPONENT: {
        "0": _Number.POWER,
        "1-9": _Number.POWER,
        "+": _Number.EXPONENT_SIGN,
        "-": _Number.EXPONENT_SIGN,
    },
    _Number.EXPONENT_SIGN: {"0": _Number.POWER, "1-9": _Number.POWER},
    _Number.POWER: {"0": _Number.POWER, "1-9": _Number.POWER},
}


class JsonScan:
    """One JSON value as it comes; begin at its first character, which is no white space.

    Attributes:
        complete: Whether the value ends with the last character taken. A number may go on.
    """

    __slots__ = ("_escape", "_expects", "_literal", "_number", "_stack", "_string", "complete")

    def __init__(self) -> None:
        """Expect a value."""
        self.complete = False
        self._expects = _Expects.VALUE
        self._stack: list[str] = []
        self._string = False
        self._escape = 0
        self._literal = ""
        self._number: _Number | None = None

    def take(self, char: str) -> bool:
        """Add a character; False when it can't follow, and then nothing has changed."""
        if self._string:
            return self._in_string(char)
        if self._literal:
            return self._in_literal(char)
        if self._number is not None:
            step = _NUMBER_STEPS[self._number].get(_kind(char))
            if step is not None:
                self._number = step
                self.complete = not self._stack and step in _WHOLE_NUMBERS
                return True
            if self._number not in _WHOLE_NUMBERS or not self._stack:
                return False
        if char in SPACE:
            return bool(self._stack)
        return self._structure(char)

    def _structure(self, char: str) -> bool:
        expects = _Expects.COMMA_OR_END if self._number is not None else self._expects
        if expects is _Expects.COLON:
            taken = char == ":"
            self._expects = _Expects.VALUE if taken else expects
        elif expects is _Expects.COMMA_OR_END:
            taken = char == "," or self._closes(char)
            if char == ",":
                inside = self._stack[-1] == "{"
                self._expects = _Expects.KEY if inside else _Expects.VALUE
        elif expects in {_Expects.KEY, _Expects.KEY_OR_END}:
            taken = char == '"' or (expects is _Expects.KEY_OR_END and self._closes(char))
            if char == '"':
                self._string, self._expects = True, _Expects.COLON
        elif expects is _Expects.VALUE_OR_END and self._closes(char):
            taken = True
        else:
            taken = expects is not _Expects.NOTHING and self._begins(char)
        if taken and char in ",]}":
            self._number = None
        return taken

    def _closes(self, char: str) -> bool:
        if not self._stack or char != {"{": "}", "[": "]"}[self._stack[-1]]:
            return False
        self._stack.pop()
        self._end()
        return True

    def _begins(self, char: str) -> bool:
        if char in "{[":
            self._stack.append(char)
            self._expects = _Expects.KEY_OR_END if char == "{" else _Expects.VALUE_OR_END
        elif char == '"':
            self._string, self._expects = True, _Expects.NOTHING
        elif char in _LITERALS:
            self._literal = _LITERALS[char][1:]
        elif char == "-" or char in _DIGITS:
            self._number = _Number.SIGN if char == "-" else _NUMBER_STEPS[_Number.SIGN][_kind(char)]
            self.complete = not self._stack and self._number in _WHOLE_NUMBERS
        else:
            return False
        return True

    def _in_string(self, char: str) -> bool:
        if self._escape > 1:
            taken = char in _HEX
            self._escape = (self._escape - 1) % 5 if taken else self._escape
            self._escape = 0 if self._escape == 1 else self._escape
            return taken
        if self._escape:
            if char == "u":
                self._escape = 5
            elif char in _ESCAPED:
                self._escape = 0
            else:
                return False
            return True
        if char == '"':
            self._string = False
            if self._expects is _Expects.NOTHING:
                self._end()
        elif char == "\\":
            self._escape = 1
        return char >= " "

    def _in_literal(self, char: str) -> bool:
        if char != self._literal[0]:
            return False
        self._literal = self._literal[1:]
        if not self._literal:
            self._end()
        return True

    def _end(self) -> None:
        """Go on behind a value."""
        self._expects = _Expects.COMMA_OR_END if self._stack else _Expects.NOTHING
        self.complete = not self._stack


def _kind(char: str) -> str:
    """Return which column of the number's table a character is in."""
    if char in "123456789":
        return "1-9"
    return "e" if char == "E" else char
