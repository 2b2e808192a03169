"""What the embedding workload asks of its engine, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headpond_workloads.encoders.items import Described

MAX_VALUES = 2**23
"""The most numbers in one answer: 2,048 vectors of 4,096 values; about 90 MB as JSON."""


class Truncation(StrEnum):
    """What becomes of a text that is longer than the model takes."""

    NONE = "none"
    """It is refused, with both numbers."""
    END = "end"
    """Its last tokens are dropped."""
    START = "start"
    """Its first tokens are dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedItem:
    """One text to be embedded.

    Attributes:
        text: The text, or its token IDs without special tokens.
        truncation: What becomes of it when it is too long.
        max_tokens: The most tokens of it to compute, special ones included, where that is less
            than the model takes; `truncation` says what becomes of a longer one.
        max_tokens_param: The request field that `max_tokens` came from, for messages.
        prompt: The name of one of the bundle's prompts, put before the text; None for the
            bundle's default prompt, if it has one.
        preferred_prompts: Where `prompt` is None, names of prompts of which the first that the
            bundle has is used; when it has none of them, its default prompt is.
        dimensions: Leading dimensions to keep, renormalised; None for all.
        normalize: Whether the vector gets length 1; None as the bundle says.
        each_token: Whether a vector for each token is wanted, unpooled.
        param: The request field the text came from, for messages.
    """

    text: str | tuple[int, ...]
    truncation: Truncation = Truncation.END
    max_tokens: int | None = None
    max_tokens_param: str = "max_tokens"
    prompt: str | None = None
    preferred_prompts: tuple[str, ...] = ()
    dimensions: int | None = None
    normalize: bool | None = None
    each_token: bool = False
    param: str = "input"


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedding:
    """The vectors of one text.

    Attributes:
        vectors: Rows of little-endian float32: one, or one for each token.
        dimensions: Values in a row.
        tokens: Tokens that were computed, special ones included, after truncation.
    """

    vectors: bytes
    dimensions: int
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Description(Described):
    """What a model is.

    Attributes:
        pooling: How token vectors become one, e.g. `mean`.
        dimensions: Values of a full vector.
        prompts: The names of its prompts.
    """

    pooling: str
    dimensions: int
    prompts: tuple[str, ...] = ()
