"""Keyword arguments of the embedding resource, as type checkers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Required, TypedDict

from headpond.client.options import CallOptions


class StoreParams(TypedDict, total=False):
    """Where vectors go before the call is done."""

    collection: Required[str]
    ids: Required[Sequence[int | str]]
    payloads: Sequence[Mapping[str, object]] | None


class EmbeddingParams(CallOptions, total=False):
    """What `embeddings.create` takes."""

    model: Required[str]
    input: Required[str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]]
    encoding_format: Literal["float", "base64"] | None
    dimensions: int | None
    user: str | None
    prompt_name: str | None
    input_type: Literal["query", "passage", "document"] | None
    normalize: bool | None
    truncate: Literal["NONE", "START", "END"] | None
    truncate_prompt_tokens: int | None
    store: StoreParams | None
