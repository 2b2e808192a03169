"""Prompts of exact length, cut from the language reference that CPython itself carries.

It is on every machine that runs Python, is licensed freely (PSF) and need not be committed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import Tokenizer

_BETWEEN = 8
"""Tokens between two prompts, so that none goes on where another ends."""


def reference_text() -> str:
    """Return the text of all of pydoc's topics, in a fixed order."""
    return "\n\n".join(dict.fromkeys(topics[name] for name in sorted(topics)))


class Prompts:
    """Texts that are exactly as many tokens as asked for, each given out once."""

    def __init__(self, tokenizer: Path) -> None:
        """Take the text apart with a `tokenizer.json`."""
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        text = reference_text()
        self._ids = self._encode(text)
        self._at, self._laps = 0, 0
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:12]

    def take(self, tokens: int, *, after: str = "") -> str:
        """Return the next text of `tokens` tokens, also when it stands after another."""
        before = len(self._encode(after))
        return next(
            text
            for text in self._windows(tokens)
            if len(self._encode(after + text)) == before + tokens
        )

    def ids(self, count: int) -> list[int]:
        """Return the first tokens of the text."""
        return self._ids[:count]

    def reached(self, expected: list[int], text: str) -> int:
        """Return how many of the expected tokens a text begins with."""
        equal = 0
        for count in range(1, len(expected) + 1):
            decoded = self._tokenizer.decode(expected[:count], skip_special_tokens=False)
            if decoded.endswith("\N{REPLACEMENT CHARACTER}"):
                continue  # the token ends within a character
            if not text.startswith(decoded):
                return equal
            equal = count
        return equal

    def _windows(self, tokens: int) -> Iterator[str]:
        while True:
            if self._at + tokens > len(self._ids):  # again, with other beginnings
                self._laps += 1
                self._at = self._laps
            ids = self._ids[self._at : self._at + tokens]
            self._at += tokens + _BETWEEN
            yield self._tokenizer.decode(ids, skip_special_tokens=False)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids
