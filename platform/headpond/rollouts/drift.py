"""Drift: a canary's answer to the same question is no longer what it was."""

from __future__ import annotations

from headpond.bundle.fixtures import first_difference
from headpond.engine import Json

_TOLERANCE = 1e-3
_IN_A_ROW = 2
"""So many answers must differ: batch mates alone can turn a token where two are as likely."""


class Drift:
    """The first answer of a canary, and how those that follow differ from it."""

    def __init__(self) -> None:
        """Start without an answer."""
        self._first: Json = None
        self._differing = 0
        self.reason: str | None = None

    def take(self, answer: Json) -> None:
        """Compare an answer with the first one; None is none."""
        if answer is None:
            return
        if self._first is None:
            self._first = answer
            return
        difference = first_difference(self._first, answer, _TOLERANCE)
        self._differing = 0 if difference is None else self._differing + 1
        if difference is not None and self._differing >= _IN_A_ROW:
            self.reason = (
                f"drift: the workload's example was answered differently at "
                f"{difference.position or 'the value'}: {difference.expected} at first, "
                f"{difference.got} now"
            )
