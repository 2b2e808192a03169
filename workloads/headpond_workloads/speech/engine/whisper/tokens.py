"""Whisper's tokens: what goes before a text, and how tokens make words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from headpond.errors import BundleError

_SPACE = "Ġ"  # how byte-level tokens write a space
_LAST_ENGLISH_END = 50_256  # models of several languages have one token more before the end


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens that make one word: `begin` up to `end` of a text."""

    text: str
    begin: int
    end: int


class WhisperTokens:
    """The vocabulary of one model.

    Attributes:
        end: The token that ends a text.
        silence: The token that says that nobody speaks; None if there is none.
        multilingual: Whether the model is told which language it hears.
    """

    def __init__(self, path: Path) -> None:
        """Read `tokenizer.json`.

        Raises:
            BundleError: It is none of Whisper's.
        """
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        # The library raises nothing more special than this.
        except Exception as error:
            raise BundleError(
                f"the tokenizer can't be read: {error}", param="input.tokenizer"
            ) from error
        self.end = self._named("<|endoftext|>")
        self._start = self._named("<|startoftranscript|>")
        self._before = self._named("<|startofprev|>")
        self._transcribe = self._named("<|transcribe|>")
        self._untimed = self._named("<|notimestamps|>")
        self.silence = self._find("<|nospeech|>") or self._find("<|nocaptions|>")
        self.multilingual = self.end > _LAST_ENGLISH_END

    def prompt(self, language: str, context: str | None, most_context: int) -> tuple[int, ...]:
        """Return what goes before a text.

        Args:
            language: As ISO-639-1 has it; one that `speaks`.
            context: What was said before, or words that are likely to come.
            most_context: How many of its last tokens are kept.
        """
        before: list[int] = []
        if context and context.strip():
            encoded = self._tokenizer.encode(f" {context.strip()}", add_special_tokens=False)
            before = [self._before, *encoded.ids[-most_context:]]
        if not self.multilingual:
            return (*before, self._start, self._untimed)
        spoken = self._named(f"<|{language}|>")
        return (*before, self._start, spoken, self._transcribe, self._untimed)

    def speaks(self, language: str) -> bool:
        """Say whether the model knows a language."""
        if not self.multilingual:
            return language == "en"
        return self._find(f"<|{language}|>") is not None

    def asked_at(self, prompt: Sequence[int]) -> int:
        """Return the place in a prompt after which the model says whether anybody speaks."""
        return list(prompt).index(self._start)

    def text(self, token_ids: Sequence[int]) -> str:
        """Return what tokens say, without the space before it."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True)).lstrip()

    def begins_word(self, token_id: int) -> bool:
        """Say whether a token is the first one of a word."""
        return str(self._tokenizer.id_to_token(token_id)).startswith(_SPACE)

    def words(self, token_ids: Sequence[int]) -> list[Span]:
        """Return the words of a text, with what is written right after each."""
        starts = [
            at for at, token_id in enumerate(token_ids) if at == 0 or self.begins_word(token_id)
        ]
        spans = zip(starts, [*starts[1:], len(token_ids)], strict=True)
        words = [Span(self.text(token_ids[begin:end]), begin, end) for begin, end in spans]
        return [word for word in words if word.text.strip()]

    def _find(self, name: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(name)
        return found

    def _named(self, name: str) -> int:
        found = self._find(name)
        if found is None:
            raise BundleError(f"the tokenizer has no {name}", param="input.tokenizer")
        return found
