"""The words in which metrics, logs and spans say how a call or request ended.

`ok`, or the code of its error. What came ends in exactly one of four ways: it went well,
failed, was cancelled by its caller, or was refused before any work; the last is counted apart.
"""

from __future__ import annotations

from collections import Counter

from headpond.errors import HeadpondError, Overloaded, RequestCancelled

OK = "ok"
CANCELLED = RequestCancelled.code
"""The caller went away."""


def outcome(error: HeadpondError | None) -> str:
    """Return the word for an end: `ok`, or the error's code, or its kind where it has none."""
    return OK if error is None else error.code or error.kind


def is_refusal(error: HeadpondError) -> bool:
    """Say whether an error that came before any work is a refusal, and no fault of ours.

    A caller who leaves early has cancelled; what breaks early has failed.
    """
    refused = error.status < 500 or isinstance(error, Overloaded)
    return refused and not isinstance(error, RequestCancelled)


class Account:
    """Counts what came and what became of it, so that it adds up at every moment.

    Attributes:
        received: How many came.
        finished: Those that ended otherwise than refused, by outcome.
        refused: Those that were refused, by the error's word.
    """

    def __init__(self) -> None:
        """Start at zero."""
        self.received = 0
        self.finished: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """How many are not over."""
        return self.received - self.finished.total() - self.refused.total()

    def end(self, error: HeadpondError | None, *, admitted: bool) -> bool:
        """Count an end.

        Args:
            error: How it ended; None for well.
            admitted: Whether work had begun, or was promised.

        Returns:
            Whether it counts as refused.
        """
        refused = error is not None and not admitted and is_refusal(error)
        (self.refused if refused else self.finished)[outcome(error)] += 1
        return refused
