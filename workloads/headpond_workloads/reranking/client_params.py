"""Keyword arguments of `rerank`, as type checkers see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Required, TypedDict


class DocumentParam(TypedDict):
    """A text as an object."""

    text: str


class RerankParams(TypedDict, total=False):
    """What `rerank` takes."""

    model: Required[str]
    query: Required[str]
    documents: Required[Sequence[str | DocumentParam]]
    top_n: int | None
    return_documents: bool | None
