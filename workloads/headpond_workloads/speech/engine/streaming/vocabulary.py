"""The tokens of a streaming model, and the words they make."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path

from headpond.errors import BundleError
from headpond_workloads.speech.engine.streaming.network import Emission
from headpond_workloads.speech.items import Word

_BEGINS_WORD = "▁"


class Vocabulary:
    """Tokens by number, from `tokens.txt`: a token and its number on each line."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            BundleError: A line is none of a token.
        """
        self._tokens: dict[int, str] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            token, _, token_id = line.rpartition(" ")
            if not token_id.isdigit():
                raise BundleError(
                    f"line {number} of the tokens is no token and its number",
                    param="input.tokenizer",
                )
            self._tokens[int(token_id)] = token or " "

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def silent(self) -> frozenset[int]:
        """Tokens that stand for no text, like `<unk>`."""
        return frozenset(
            token_id
            for token_id, token in self._tokens.items()
            if token.startswith("<") and token.endswith(">")
        )

    def text(self, emissions: Sequence[Emission]) -> str:
        """Return what tokens say."""
        joined = "".join(self._tokens.get(each.token_id, "") for each in emissions)
        return joined.replace(_BEGINS_WORD, " ").strip()

    def words(self, emissions: Sequence[Emission], row_ms: int, end_ms: int) -> tuple[Word, ...]:
        """Return when each word was said: from its first token to the next word's.

        Args:
            emissions: Tokens, with rows counted from the utterance's beginning.
            row_ms: How long a row is.
            end_ms: When the utterance ends.
        """
        groups: list[list[Emission]] = []
        for emission in emissions:
            token = self._tokens.get(emission.token_id, "")
            if not groups or token.startswith((_BEGINS_WORD, " ")):
                groups.append([])
            groups[-1].append(emission)
        starts = [group[0].row * row_ms for group in groups]
        words = []
        for group, start, following in zip(groups, starts, [*starts[1:], end_ms], strict=True):
            last_ms = (group[-1].row + _LASTS_ROWS) * row_ms
            chance = exp(sum(each.log_prob for each in group) / len(group))
            end = max(min(last_ms, following), start)
            words.append(Word(self.text(group), start, end, chance))
        return tuple(word for word in words if word.text)


_LASTS_ROWS = 8
"""A word ends at most so long after its last token came: a third of a second."""
