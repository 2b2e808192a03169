"""Wire types of Jina's `POST /v1/rerank`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headpond_workloads.encoders.schema_fields import Count, Flag, NonEmpty

RERANK_PATH = "/v1/rerank"


class TextDocument(BaseModel):
    """A text as an object; other fields than `text` are ranked where `rank_fields` names them."""

    model_config = ConfigDict(frozen=True, extra="allow")

    text: str | None = None


class RerankRequest(BaseModel):
    """Documents, and the query by which they are ranked."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty
    query: str | TextDocument
    documents: Annotated[tuple[str | TextDocument, ...], Field(fail_fast=True)]
    top_n: Count | None = None
    return_documents: Flag | None = None
    rank_fields: Annotated[tuple[NonEmpty, ...], Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="Cohere's v1: the fields of documents that are ranked, in this order (`text`).",
    )


class RerankResult(BaseModel):
    """A document by its index in the request, and how well it answers the query."""

    index: int
    relevance_score: float
    document: TextDocument | None = None


class RerankUsage(BaseModel):
    """Tokens of all pairs of query and document that were computed."""

    total_tokens: int
    prompt_tokens: int


class Ranking(BaseModel):
    """The answer: the best document first."""

    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[RerankResult]
    usage: RerankUsage
