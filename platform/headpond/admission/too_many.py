"""The refusal of a call whose likes would be refused, too, for a while."""

from __future__ import annotations

from headpond.admission.drain import retry_after_s
from headpond.errors import Overloaded


class TooMany(Overloaded):
    """More calls like it come than are done.

    Attributes:
        for_s: All calls of its line are refused for so long, whatever they ask for.
    """

    for_s = 0.0

    @classmethod
    def for_a_while(cls, seconds: float, text: str | None = None) -> TooMany:
        """Return the refusal of all calls of a line, for so many seconds."""
        error = cls(text, retry_after_s=retry_after_s(seconds))
        error.for_s = seconds
        return error
