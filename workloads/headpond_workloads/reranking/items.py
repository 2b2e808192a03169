"""What the reranking workload asks of its engine, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass

from headpond_workloads.encoders.items import Described


@dataclass(frozen=True, kw_only=True, slots=True)
class PairItem:
    """One document to be scored against a query.

    Attributes:
        query: The query; or the first, or only, text of a classification.
        document: The document; None to classify `query` alone.
        max_document_tokens: Tokens of the document that count; None for what fits.
        truncate: Whether a pair that is too long loses the end of its document; else it is
            refused, with both numbers.
        keep_start: With `truncate`, whether the start of the document is kept, or its end.
        param: The request field the document came from, for messages.
    """

    query: str
    document: str | None
    max_document_tokens: int | None = None
    truncate: bool = True
    keep_start: bool = True
    param: str = "documents"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """What the model says of one pair.

    Attributes:
        logits: One number for each label, as the model gives them; one for a reranker.
        scores: The same through the model's own activation (sigmoid or softmax; for late
            interaction, the mean of the best similarities).
        tokens: Tokens of the pair that were computed.
    """

    logits: tuple[float, ...]
    scores: tuple[float, ...]
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Description(Described):
    """What a model is.

    Attributes:
        labels: Names of its outputs, in their order.
    """

    labels: tuple[str, ...]
