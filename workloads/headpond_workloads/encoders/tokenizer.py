"""From texts to token IDs, special tokens apart, so that whoever cuts keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from headpond.bundle.store import Bundle
from headpond.errors import BundleError, InvalidRequest
from headpond_workloads.encoders.config import SentenceConfig
from headpond_workloads.encoders.files import read_if_there
from headpond_workloads.encoders.tokens import Tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """The special tokens around one text, or around two.

    Attributes:
        gaps: Special tokens before the first text, between texts, and after the last, each
            with its type.
        types: The type of each text's own tokens.
    """

    gaps: tuple[tuple[tuple[int, int], ...], ...]
    types: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """How many special tokens there are."""
        return sum(map(len, self.gaps))

    @property
    def most_type(self) -> int:
        """The greatest type."""
        return max((*self.types, *(kind for gap in self.gaps for _, kind in gap)))

    def around(self, *texts: Sequence[int]) -> Tokens:
        """Put the special tokens around the token IDs of as many texts as it is for."""
        token_ids: list[int] = []
        type_ids: list[int] = []
        parts = zip(texts, self.types, strict=True)
        for gap in self.gaps:
            for token_id, kind in gap:
                token_ids.append(token_id)
                type_ids.append(kind)
            text, kind = next(parts, ((), 0))
            token_ids.extend(text)
            type_ids.extend([kind] * len(text))
        return Tokens(
            token_ids=np.array(token_ids, dtype=np.int32),
            type_ids=np.array(type_ids, dtype=np.int32),
        )


class Tokenizer:
    """Tokenizes; safe to call from several threads, as nothing of it ever changes.

    Special tokens that are spelled out inside a text are special tokens, as in the libraries
    that models are trained with.
    """

    def __init__(self, backend: Backend, vocab_tokens: int, *, lower_case: bool = False) -> None:
        """Take a tokenizer over; its truncation and padding are switched off for good.

        Args:
            backend: As its `tokenizer.json` says.
            vocab_tokens: Rows of the model's embedding; larger IDs are refused.
            lower_case: Whether texts are put into lower case first.

        Raises:
            BundleError: It makes token IDs that the model lacks.
        """
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._vocab_tokens = vocab_tokens
        self._lower_case = lower_case
        most = max(backend.get_vocab(with_added_tokens=True).values(), default=0)
        if most >= vocab_tokens:
            raise BundleError(
                f"the tokenizer makes token ID {most}, and the model has {vocab_tokens}",
                param="artifacts.tokenizer",
            )
        probe = "a"
        self.single = _frame(backend.encode(probe))
        self.pair = _frame(backend.encode(probe, probe))

    def encode(self, text: str | Sequence[int], param: str) -> list[int]:
        """Return the token IDs of a text, or those that were given, without special tokens.

        Raises:
            InvalidRequest: The text is not Unicode, or an ID is none of the model's.
        """
        if not isinstance(text, str):
            return self._checked(text, param)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"character {error.start} of the text is half a character, a lone surrogate",
                param=param,
            ) from None
        text = text.lower() if self._lower_case else text
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def _checked(self, token_ids: Iterable[int], param: str) -> list[int]:
        checked = list(token_ids)
        for token_id in checked:
            if not 0 <= token_id < self._vocab_tokens:
                raise InvalidRequest(
                    f"token ID {token_id} is outside the vocabulary (0 to {self._vocab_tokens - 1})",
                    param=param,
                )
        return checked


def read_tokenizer(bundle: Bundle, vocab_tokens: int, *, types: int) -> Tokenizer:
    """Read the artifact `tokenizer`, a `tokenizer.json`.

    Raises:
        BundleError: It is none, or makes IDs or types that the model lacks.
    """
    try:
        backend = Backend.from_file(str(bundle.artifact("tokenizer")))
    # The library raises nothing more special than this.
    except Exception as error:
        raise BundleError(
            f"the tokenizer can't be read: {error}", param="artifacts.tokenizer"
        ) from error
    sentences = read_if_there(bundle, "sentence_config", SentenceConfig) or SentenceConfig()
    tokenizer = Tokenizer(backend, vocab_tokens, lower_case=sentences.do_lower_case)
    most = max(tokenizer.single.most_type, tokenizer.pair.most_type)
    if most >= types:
        raise BundleError(
            f"the tokenizer makes type {most}, and the model has {types}",
            param="artifacts.tokenizer",
        )
    return tokenizer


def _frame(probe: Encoding) -> Frame:
    """Take the special tokens off a tokenized probe, text by text."""
    gaps: list[list[tuple[int, int]]] = [[]]
    types: list[int] = []
    rows = zip(probe.ids, probe.type_ids, probe.sequence_ids, strict=True)
    for token_id, kind, text in rows:
        if text is None:
            gaps[-1].append((token_id, kind))
        elif text == len(types):
            types.append(kind)
            gaps.append([])
    return Frame(gaps=tuple(map(tuple, gaps)), types=tuple(types))
