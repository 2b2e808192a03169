"""Wire types of Jina's `POST /v1/rerank`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headpond_workloads.encoders.schema_fields import Count, Flag, NonEmpty

RERANK_PATH = "/v1/rerank"


class TextDocument(BaseModel):
    """A text as an object."""

    model_config = ConfigDict(frozen=True)

    text: str


def text_of(document: str | TextDocument) -> str:
    """Return the text of a document in either form."""
    return document if isinstance(document, str) else document.text


class RerankRequest(BaseModel):
    """Documents, and the query by which they are ranked."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty
    query: str | TextDocument
    documents: Annotated[tuple[str | TextDocument, ...], Field(fail_fast=True)]
    top_n: Count | None = None
    return_documents: Flag | None = None


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
