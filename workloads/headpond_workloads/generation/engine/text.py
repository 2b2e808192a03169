"""From token bytes to text that may be shown: whole characters, and no stop string."""

from __future__ import annotations

import codecs
from collections.abc import Iterable


class StopMatcher:
    """Follows how much of one stop string the text ends with (Knuth-Morris-Pratt)."""

    __slots__ = ("_fallback", "matched", "stop")

    def __init__(self, stop: str) -> None:
        """Precompute, for each prefix of `stop`, its longest proper border."""
        self.stop = stop
        self.matched = 0
        self._fallback = [0] * len(stop)
        border = 0
        for at in range(1, len(stop)):
            while border and stop[at] != stop[border]:
                border = self._fallback[border - 1]
            border += stop[at] == stop[border]
            self._fallback[at] = border

    def advance(self, char: str) -> bool:
        """Read one character; return whether the text now ends with the stop string."""
        while self.matched and self.stop[self.matched] != char:
            self.matched = self._fallback[self.matched - 1]
        self.matched += self.stop[self.matched] == char
        return self.matched == len(self.stop)


class TextStream:
    """The text of one sequence, given out as its tokens come.

    The text ends before the stop string that is complete first (of two that end together,
    before the longer), or behind it, so the split into tokens has no influence. Bytes that can't become
    a character are U+FFFD; a character that is cut off by the end is left out.
    """

    __slots__ = ("_decoder", "_held", "_include_stop", "_matchers", "stopped")

    def __init__(self, stops: Iterable[str] = (), *, include_stop: bool = False) -> None:
        """Watch for the stop strings that are not empty, and give out the one that comes or not."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matchers = [StopMatcher(stop) for stop in stops if stop]
        self._held = ""
        self._include_stop = include_stop
        self.stopped = False

    def push(self, raw: bytes, *, may_stop: bool = True) -> str:
        """Add a token's bytes and return the text that is now certain.

        Args:
            raw: The bytes.
            may_stop: Whether a stop string may begin here; once one may, later ones may too.
        """
        fresh = self._decoder.decode(raw)
        if not self._matchers or not may_stop:
            return fresh
        if self.stopped:
            return ""
        before = len(self._held)
        self._held += fresh
        for at, char in enumerate(fresh, start=before + 1):
            complete = [len(each.stop) for each in self._matchers if each.advance(char)]
            if complete:
                self.stopped = True
                end = at if self._include_stop else at - max(complete)
                return self._release(end, drop_rest=True)
        return self._release(len(self._held) - max(each.matched for each in self._matchers))

    def finish(self) -> str:
        """Return what was held back in case it became a stop string."""
        return self._release(len(self._held))

    def _release(self, count: int, *, drop_rest: bool = False) -> str:
        text, rest = self._held[:count], self._held[count:]
        self._held = "" if drop_rest else rest
        return text
