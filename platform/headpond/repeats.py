"""Requests that would be refused again: what was refused unread is so a while, with all like it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

from headpond.http.headers import DEADLINE, PRIORITY

Likeness = tuple[bytes | str, ...]
"""What a request is refused unread for: where it goes, whose it is, its deadline and class."""

MOST_S = 0.25
"""What is known of waits is not good for longer."""

KEPT = 1024
"""So many that were refused are remembered at most."""

PASSAGE = "headpond.passage"
"""In the scope of a request that was let in: its `Passage`."""

_TELLING = frozenset({b"authorization", DEADLINE.encode(), PRIORITY.encode()})


def _unheard(for_s: float) -> None:
    """Tell nobody: the edge is in another process."""


@dataclass(frozen=True, slots=True)
class Passage:
    """What the edge tells an app of itself, and may be told.

    A scope may go on to another process, as from Serve's own proxy; from there nothing is told.

    Attributes:
        refused: How many requests the edge has refused up to now; no app has seen them.
        refuse_alike: Has it refuse what is like this one, for so many seconds.
    """

    refused: int
    refuse_alike: Callable[[float], None]

    def __reduce__(self) -> tuple[type[Passage], tuple[int, Callable[[float], None]]]:
        """Cross process borders without the edge."""
        return Passage, (self.refused, _unheard)


class Repeats:
    """Refuses what is like a request that was refused unread, until one of them may come again.

    To refuse it as the first one, by its key, its quotas and its turn, costs four times as much.
    """

    def __init__(self) -> None:
        """Start with nothing refused."""
        self._until_s: dict[Likeness, float] = {}

    def refuse(self, request: Likeness, for_s: float, now_s: float) -> None:
        """Refuse what is like a request for so many seconds, `MOST_S` at most."""
        if len(self._until_s) >= KEPT:
            self._until_s = {
                each: until_s for each, until_s in self._until_s.items() if until_s > now_s
            }
        if len(self._until_s) < KEPT:
            self._until_s[request] = now_s + min(for_s, MOST_S)

    def refuses(self, request: Likeness, now_s: float) -> bool:
        """Say whether a request is refused."""
        until_s = self._until_s.get(request)
        if until_s is None:
            return False
        if until_s > now_s:
            return True
        del self._until_s[request]
        return False


def likeness(scope: Scope) -> Likeness:
    """Return what a request is refused unread for, from its scope."""
    told = sorted(pair for pair in scope["headers"] if pair[0] in _TELLING)
    return (scope["path"], *(part for pair in told for part in pair))
