"""Drafts by prompt lookup: what followed the last time the sequence's last tokens stood there.

Costs nothing but the check, and pays wherever the output repeats the prompt: summaries,
edits, code, answers in a given form.
"""

from __future__ import annotations

from collections.abc import Sequence

_MOST_CANDIDATES = 32
"""Earlier places that are looked at for a long match."""


class TokenIndex:
    """Where each token of a sequence last stood, and before that, and so on."""

    __slots__ = ("_latest", "_previous")

    def __init__(self) -> None:
        """Know no token."""
        self._latest: dict[int, int] = {}
        self._previous: list[int] = []

    def continuation(self, token_ids: Sequence[int], count: int, longest: int) -> list[int]:
        """Return up to `count` tokens that followed where the last tokens stood before.

        Of the places where up to `longest` of the last tokens agree, it is the one where
        most do, and of these the latest. What overlaps the end is repeated.

        Args:
            token_ids: The sequence; goes on from that of earlier calls.
            count: The most tokens to return.
            longest: The most tokens to compare.
        """
        self._extend(token_ids)
        start = self._match(token_ids, longest)
        if start is None:
            return []
        end = len(token_ids)
        found = list(token_ids[start : start + count])
        while len(found) < count:
            found.append(found[start + len(found) - end])
        return found

    def _extend(self, token_ids: Sequence[int]) -> None:
        latest, previous = self._latest, self._previous
        for at in range(len(previous), len(token_ids)):
            token_id = token_ids[at]
            previous.append(latest.get(token_id, -1))
            latest[token_id] = at

    def _match(self, token_ids: Sequence[int], longest: int) -> int | None:
        """Return the position after the best earlier place, or None."""
        last = len(token_ids) - 1
        best, start = 0, None
        at = self._previous[last]
        for _ in range(_MOST_CANDIDATES):
            if at < 0:
                break
            length = _common(token_ids, at, last, longest)
            if length > best:
                best, start = length, at + 1
                if length == longest:
                    break
            at = self._previous[at]
        return start


def _common(token_ids: Sequence[int], one: int, other: int, longest: int) -> int:
    """Return how many tokens agree, backwards from two positions, the first being lower."""
    length = 1
    while length < longest and length <= one:
        if token_ids[one - length] != token_ids[other - length]:
            break
        length += 1
    return length
