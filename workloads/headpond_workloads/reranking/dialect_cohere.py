"""Cohere's dialect of reranking: `POST /v2/rerank`."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.dialect import Ask, Exchange, Heading, ItemEvent, Raw
from headpond.units import Work
from headpond_workloads.encoders.schema_cohere import BilledUnits, Meta
from headpond_workloads.reranking.dialect_ranking import pairs, ranked, relevances, scores
from headpond_workloads.reranking.items import PairItem
from headpond_workloads.reranking.schema_cohere import (
    DEFAULT_DOCUMENT_TOKENS,
    CohereRanking,
    CohereRerankRequest,
    CohereRerankResult,
)
from headpond_workloads.reranking.schema_spans import refuse_spans

_UNIT_DOCUMENTS = 100
"""Documents in one of Cohere's search units."""


class CohereRerankExchange(Exchange):
    """A query, and documents in the order in which they answer it."""

    def __init__(self, request: CohereRerankRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._items: tuple[PairItem, ...] = ()

    def ask(self) -> Ask:
        """Return one item for each document; one that is too long loses its end.

        Raises:
            EmptyInput: The query, or the list of documents, is empty.
            TooManyInputs: There are more than a call may hold.
            UnsupportedParameter: Relevant spans are asked for.
        """
        request = self._request
        refuse_spans(request.relevant_spans)
        self._items = pairs(
            request.query,
            request.documents,
            "documents",
            max_document_tokens=request.max_tokens_per_doc or DEFAULT_DOCUMENT_TOKENS,
        )
        return Ask(model=request.model, items=self._items)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return a `CohereRanking`.

        Raises:
            HeadpondError: A document failed, or the model does not rank.
        """
        relevance = relevances(scores(events, self._items))
        units = -(-len(self._items) // _UNIT_DOCUMENTS)
        ranking = CohereRanking(
            id=heading.request_id,
            results=[
                CohereRerankResult(index=at, relevance_score=relevance[at])
                for at in ranked(relevance, self._request.top_n)
            ],
            meta=Meta(billed_units=BilledUnits(search_units=units)),
        )
        content = ranking.model_dump_json(exclude_none=True).encode()
        return Raw(content=content, media_type="application/json")
