"""What the denoiser is told of a prompt: texts to tokens, tokens to tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenizers import Tokenizer
from torch import Tensor

from headpond.errors import ContextLengthExceeded

Tokens = tuple[tuple[int, ...], ...]
"""The tokens of one text, for each reader, padded."""

Conditions = Mapping[str, Tensor]
"""What a row of the denoiser's batch is told besides its latents, by the argument's name."""

_KEPT_TEXTS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """A text as tokens.

    Attributes:
        tokens: For each reader, padded.
        count: Tokens of the text itself, with its begin and end, of the longest.
    """

    tokens: Tokens
    count: int


class Lexer:
    """Turns texts into the tokens of one encoder."""

    def __init__(self, tokenizer: Tokenizer, *, length: int, pad: int) -> None:
        """Keep a tokenizer that adds begin and end by itself.

        Args:
            tokenizer: Is changed: it neither pads nor truncates any more.
            length: The length of what is returned.
            pad: The token to fill up with.
        """
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._length = length
        self._pad = pad

    def read(self, text: str, param: str) -> tuple[tuple[int, ...], int]:
        """Return the tokens of a text, padded, and how many it has.

        Raises:
            ContextLengthExceeded: It has too many; what follows would be left out silently.
        """
        ids: list[int] = self._tokenizer.encode(text).ids
        if len(ids) > self._length:
            raise ContextLengthExceeded(
                f"the text has {len(ids)} tokens, and the model reads {self._length}", param=param
            )
        return (*ids, *[self._pad] * (self._length - len(ids))), len(ids)


class Encoder(Protocol):
    """Turns tokens into conditions, several texts at once."""

    def __call__(self, texts: Sequence[Tokens], width: int, height: int) -> list[Conditions]:
        """Return the conditions of each text, for pictures of a size."""
        ...

    def absent(self, empty: Conditions) -> Conditions:
        """Return the conditions where there is no negative prompt.

        Args:
            empty: Those of an empty text, which many models take for it.
        """
        ...


class Conditioning:
    """Reads prompts, and remembers what the encoders made of the last ones."""

    def __init__(self, lexers: Sequence[Lexer], encoder: Encoder) -> None:
        """Put the parts together.

        Args:
            lexers: One for each text encoder.
            encoder: Takes what they give.
        """
        self._lexers = lexers
        self._encoder = encoder
        self._kept: OrderedDict[tuple[Tokens, int, int], Conditions] = OrderedDict()

    def read(self, text: str, param: str) -> Read:
        """Return a text as tokens; pure.

        Raises:
            ContextLengthExceeded: It has too many.
        """
        found = [lexer.read(text, param) for lexer in self._lexers]
        return Read(
            tokens=tuple(tokens for tokens, _ in found), count=max(count for _, count in found)
        )

    def encode(self, wanted: Sequence[tuple[Tokens | None, int, int]]) -> list[Conditions]:
        """Return conditions for texts, each with the width and height of its picture.

        A text of None is an absent negative prompt. Texts for one size are encoded together;
        what was encoded lately is not encoded again.
        """
        keys = [(self._given(tokens), width, height) for tokens, width, height in wanted]
        fresh = [key for key in dict.fromkeys(keys) if key not in self._kept]
        for width, height in dict.fromkeys((key[1], key[2]) for key in fresh):
            texts = [key for key in fresh if key[1:] == (width, height)]
            made = self._encoder([key[0] for key in texts], width, height)
            self._kept.update(zip(texts, made, strict=True))
        for key in keys:
            self._kept.move_to_end(key)
        found = [
            self._kept[key] if tokens is not None else self._encoder.absent(self._kept[key])
            for key, (tokens, _, _) in zip(keys, wanted, strict=True)
        ]
        while len(self._kept) > _KEPT_TEXTS:
            self._kept.popitem(last=False)
        return found

    def _given(self, tokens: Tokens | None) -> Tokens:
        return self.read("", "negative_prompt").tokens if tokens is None else tokens
