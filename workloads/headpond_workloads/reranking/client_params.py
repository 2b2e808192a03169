"""Keyword arguments of `rerank`, as type checkers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Required

from headpond.client.options import CallOptions


class RerankParams(CallOptions, total=False):
    """What `rerank` takes."""

    model: Required[str]
    query: Required[str]
    documents: Required[Sequence[str | Mapping[str, object]]]
    top_n: int | None
    return_documents: bool | None
    max_tokens_per_doc: int | None
    truncation: bool | None
    raw_scores: bool | None
    rank_fields: Sequence[str] | None
