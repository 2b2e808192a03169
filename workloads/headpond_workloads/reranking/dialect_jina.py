"""Jina's dialect of reranking: `POST /v1/rerank`."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.dialect import Ask, Heading, ItemEvent, Raw, StreamWriter
from headpond.errors import UnsupportedParameter
from headpond.units import Work
from headpond_workloads.reranking.dialect_ranking import pairs, ranked, relevances, scores
from headpond_workloads.reranking.items import PairItem
from headpond_workloads.reranking.schema import (
    Ranking,
    RerankRequest,
    RerankResult,
    RerankUsage,
    TextDocument,
    text_of,
)


class RerankExchange:
    """A query, and documents in the order in which they answer it."""

    def __init__(self, request: RerankRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._texts = tuple(map(text_of, request.documents))
        self._items: tuple[PairItem, ...] = ()

    def ask(self) -> Ask:
        """Return one item for each document; one that is too long loses its end.

        Raises:
            EmptyInput: The query, or the list of documents, is empty.
            TooManyInputs: There are more than a call may hold.
        """
        self._items = pairs(text_of(self._request.query), self._texts, "documents")
        return Ask(model=self._request.model, items=self._items)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return a `Ranking`.

        Raises:
            HeadpondError: A document failed, or the model does not rank.
        """
        found = scores(events, self._items)
        relevance = relevances(found)
        tokens = sum(score.tokens for score in found)
        ranking = Ranking(
            id=heading.request_id,
            model=heading.model,
            results=[
                RerankResult(index=at, relevance_score=relevance[at], document=self._document(at))
                for at in ranked(relevance, self._request.top_n)
            ],
            usage=RerankUsage(total_tokens=tokens, prompt_tokens=tokens),
        )
        content = ranking.model_dump_json(exclude_none=True).encode()
        return Raw(content=content, media_type="application/json")

    def stream(self, heading: Heading) -> StreamWriter:
        """Refuse: the route does not stream."""
        raise UnsupportedParameter("rankings are not streamed", param="stream")

    def _document(self, index: int) -> TextDocument | None:
        if self._request.return_documents is False:
            return None
        return TextDocument(text=self._texts[index])
