"""Following JSON text character by character (RFC 8259), to know at once when it is none."""

from __future__ import annotations

from enum import Enum, auto

SPACE = " \t\n\r"

_ESCAPED = frozenset('"\\/bfnrtu')
_HEX = frozenset("0123456789abcdefABCDEF")
_CLOSING = {"{": "}", "[": "]"}
_LITERALS = {"t": "true", "f": "false", "n": "null"}


class Expects(Enum):
    """What comes next between the keys and values of JSON."""

    OPEN = auto()
    """An object and nothing else: for readers that know what the value has to be."""
    VALUE = auto()
    VALUE_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()
    NOTHING = auto()


_CLOSABLE = frozenset({Expects.VALUE_OR_END, Expects.KEY_OR_END, Expects.COMMA_OR_END})


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
        complete: Whether the value may end with the last character taken. A number may go on.
    """

    __slots__ = (
        "_escaped",
        "_expects",
        "_hex",
        "_literal",
        "_number",
        "_stack",
        "_string",
        "complete",
    )

    def __init__(self) -> None:
        """Expect a value."""
        self.complete = False
        self._expects = Expects.VALUE
        self._stack: list[str] = []
        self._string = False
        self._escaped = False
        self._hex = 0
        self._literal = ""
        self._number: _Number | None = None

    def take(self, char: str) -> bool:
        """Add a character; False when it can't follow, and then the scan is of no more use."""
        if self._string:
            return self._in_string(char)
        if self._literal:
            return self._in_literal(char)
        if self._number is not None:
            step = _NUMBER_STEPS[self._number].get(_kind(char))
            if step is not None:
                return self._count(step)
            if self._number not in _WHOLE_NUMBERS or not self._stack:
                return False
            self._number = None
        return bool(self._stack) if char in SPACE else self._between(char)

    def _between(self, char: str) -> bool:
        """Take a character that is outside of strings, literals and numbers."""
        expects = self._expects
        if expects in _CLOSABLE and self._closes(char):
            return True
        if expects is Expects.COMMA_OR_END:
            self._expects = Expects.KEY if self._stack[-1] == "{" else Expects.VALUE
            return char == ","
        if expects is Expects.COLON:
            self._expects = Expects.VALUE
            return char == ":"
        if expects in {Expects.KEY, Expects.KEY_OR_END}:
            self._string, self._expects = True, Expects.COLON
            return char == '"'
        return expects is not Expects.NOTHING and self._begins(char)

    def _closes(self, char: str) -> bool:
        if char != _CLOSING[self._stack[-1]]:
            return False
        self._stack.pop()
        self._end()
        return True

    def _begins(self, char: str) -> bool:
        if char in _CLOSING:
            self._stack.append(char)
            self._expects = Expects.KEY_OR_END if char == "{" else Expects.VALUE_OR_END
        elif char == '"':
            self._string, self._expects = True, Expects.NOTHING
        elif char in _LITERALS:
            self._literal = _LITERALS[char][1:]
        else:
            step = _Number.SIGN if char == "-" else _NUMBER_STEPS[_Number.SIGN].get(_kind(char))
            return step is not None and self._count(step)
        return True

    def _count(self, step: _Number) -> bool:
        self._number = step
        self._expects = Expects.COMMA_OR_END if self._stack else Expects.NOTHING
        self.complete = not self._stack and step in _WHOLE_NUMBERS
        return True

    def _in_string(self, char: str) -> bool:
        if self._hex:
            self._hex -= 1
            return char in _HEX
        if self._escaped:
            self._escaped = False
            self._hex = 4 if char == "u" else 0
            return char in _ESCAPED
        self._escaped = char == "\\"
        if char == '"':
            self._string = False
            if self._expects is not Expects.COLON:
                self._end()
        return char >= " "

    def _in_literal(self, char: str) -> bool:
        taken, self._literal = char == self._literal[0], self._literal[1:]
        if not self._literal:
            self._end()
        return taken

    def _end(self) -> None:
        """Go on behind a value."""
        self._expects = Expects.COMMA_OR_END if self._stack else Expects.NOTHING
        self.complete = not self._stack


def _kind(char: str) -> str:
    """Return which column of the number's table a character is in."""
    if char in "123456789":
        return "1-9"
    return "e" if char == "E" else char
