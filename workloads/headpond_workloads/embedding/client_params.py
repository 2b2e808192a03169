"""Keyword arguments of the embedding resource, as type checkers see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Required, TypedDict


class EmbeddingParams(TypedDict, total=False):
    """What `embeddings.create` takes."""

    model: Required[str]
    input: Required[str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]]
    encoding_format: Literal["float", "base64"] | None
    dimensions: int | None
    user: str | None
    prompt_name: str | None
