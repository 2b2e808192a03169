"""Keeps control tokens that callers spell out apart from those that templates write.

As transformers does: what callers give is marked with private characters, goes through the
template with its marks, and is encoded as plain text where it comes out.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tokenizers import Tokenizer

from headpond.engine import Json

_BEGIN, _END = "\U000f0000", "\U000f0001"
_MARKS = str.maketrans("", "", _BEGIN + _END)


def _any_of(tokens: Collection[str]) -> str:
    """Return an expression for any of some tokens, the longest that fits; it may be none."""
    return "|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)"


class ControlTokens:
    """The control tokens of one template."""

    def __init__(self, control: Collection[str], added: Collection[str]) -> None:
        """Know them.

        Args:
            control: Tokens that only the template may write.
            added: All tokens that the tokenizer finds in a text before it splits it.
        """
        self._control = re.compile(_any_of(control))
        self._marked = re.compile(f"{_BEGIN}({_any_of(added)}){_END}|[{_BEGIN}{_END}]")

    def mark(self, value: Json) -> Json:
        """Return a value with the control tokens in its texts marked; keys stay as they are."""
        if isinstance(value, str):
            # Without marks that were there before, or anybody could forge one.
            return self._control.sub(rf"{_BEGIN}\g<0>{_END}", value.translate(_MARKS))
        if isinstance(value, dict):
            return {key: self.mark(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.mark(each) for each in value]
        return value

    def encode(self, tokenizer: Tokenizer, text: str) -> list[int]:
        """Return the tokens of a rendered text.

        Args:
            tokenizer: Splits texts.
            text: Has marks where they came through the template.

        Raises:
            ValueError: The tokenizer makes a control token of plain text.
        """
        # A template may have cut a mark in two: what is left of it is dropped, and still
        # keeps its sides apart. So there is text, a marked token or none, text, and so on.
        first, *rest = self._marked.split(text)
        token_ids = _ordinary(tokenizer, first)
        for at, piece in enumerate(rest):
            if piece:
                token_ids += _encoded(tokenizer, piece, plain=at % 2 == 0)
        return token_ids


def _encoded(tokenizer: Tokenizer, piece: str, *, plain: bool) -> list[int]:
    """Return the tokens of a piece within a text; if `plain`, of a token's spelling."""
    encode = _plain if plain else _ordinary
    # SentencePiece puts a space before what begins a text, but not behind a new line.
    line, token_ids = _ordinary(tokenizer, "\n"), encode(tokenizer, f"\n{piece}")
    behind = token_ids[: len(line)] == line
    token_ids = token_ids[len(line) :] if behind else encode(tokenizer, piece)
    if plain and tokenizer.token_to_id(piece) in token_ids:
        raise ValueError(f"{piece!r} can't be text: the tokenizer makes a control token of it")
    return token_ids


def _ordinary(tokenizer: Tokenizer, text: str) -> list[int]:
    token_ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return token_ids


def _plain(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text in which no added token is looked for.

    The tokenizer as a whole can leave out the special ones only; its parts know none.
    """
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    splits = [text]
    if tokenizer.pre_tokenizer is not None:
        splits = [split for split, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    return [token.id for split in splits for token in tokenizer.model.tokenize(split)]
