"""Jina's dialect of reranking: `POST /v1/rerank`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headpond.dialect import Ask, Exchange, Heading, ItemEvent, Raw
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.reranking.dialect_ranking import pairs, ranked, relevances, scores
from headpond_workloads.reranking.items import PairItem
from headpond_workloads.reranking.schema import (
    Ranking,
    RerankRequest,
    RerankResult,
    RerankUsage,
    TextDocument,
)
from headpond_workloads.reranking.schema_spans import refuse_spans


class RerankExchange(Exchange):
    """A query, and documents in the order in which they answer it."""

    def __init__(self, request: RerankRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._items: tuple[PairItem, ...] = ()

    def ask(self) -> Ask:
        """Return one item for each document; one that is too long loses its end or is refused.

        Raises:
            EmptyInput: The query, or the list of documents, is empty.
            TooManyInputs: There are more than a call may hold.
            InvalidRequest: A document has none of the fields that are ranked.
            UnsupportedParameter: Chunks or relevant spans are asked for.
        """
        request = self._request
        refuse_spans(request.relevant_spans)
        if request.max_chunks_per_doc not in (None, 1):
            raise UnsupportedParameter(
                "documents are not read in chunks; a long one is cut", param="max_chunks_per_doc"
            )
        fields = request.rank_fields or ("text",)
        texts = [
            _text(document, fields, f"documents.{at}")
            for at, document in enumerate(request.documents)
        ]
        self._items = pairs(
            _text(request.query, ("text",), "query"),
            texts,
            "documents",
            max_document_tokens=request.max_tokens_per_doc,
            truncate=request.truncation is not False,
        )
        return Ask(model=request.model, items=self._items)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return a `Ranking`.

        Raises:
            HeadpondError: A document failed, or the model does not rank.
        """
        found = scores(events, self._items)
        relevance = relevances(found, raw=bool(self._request.raw_scores))
        tokens = sum(score.tokens for score in found)
        ranking = Ranking(
            id=heading.request_id,
            object="list",
            model=heading.model,
            results=[
                self._result(at, relevance[at]) for at in ranked(relevance, self._request.top_n)
            ],
            usage=RerankUsage(total_tokens=tokens, prompt_tokens=tokens),
        )
        content = ranking.model_dump_json(exclude_unset=True).encode()
        return Raw(content=content, media_type="application/json")

    def _result(self, index: int, relevance: float) -> RerankResult:
        """Return a document's result; what was sent is sent back as it is, nulls included."""
        if self._request.return_documents is False:
            return RerankResult(index=index, relevance_score=relevance)
        document = self._request.documents[index]
        told = TextDocument(text=document) if isinstance(document, str) else document
        return RerankResult(index=index, relevance_score=relevance, document=told)


def _text(document: str | TextDocument, fields: Sequence[str], param: str) -> str:
    """Return a text, or an object's fields, each in a line of its own."""
    if isinstance(document, str):
        return document
    given: Mapping[str, object] = {"text": document.text, **(document.model_extra or {})}
    found = [name for name in fields if given.get(name) is not None]
    if not found:
        raise InvalidRequest(f"has no field {' or '.join(fields)}", param=param)
    lines: list[str] = []
    for name in found:
        if not isinstance(line := given[name], str):
            raise InvalidRequest("must be a string, as it is ranked", param=f"{param}.{name}")
        lines.append(line)
    return "\n".join(lines)
