"""Wire types of Jina's `POST /v1/rerank`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from headpond_workloads.encoders.schema_cohere import Priority
from headpond_workloads.encoders.schema_fields import Count, Flag, NonEmpty
from headpond_workloads.reranking.schema_spans import SPANS_DESCRIPTION

RERANK_PATH = "/v1/rerank"


class TextDocument(BaseModel):
    """A text as an object; other fields than `text` are ranked where `rank_fields` names them."""

    model_config = ConfigDict(frozen=True, extra="allow")

    text: str | None = None


def _form(value: object) -> str | None:
    """Tell a text from an object, so that errors are about one of them."""
    if isinstance(value, str):
        return "a text"
    return "an object" if isinstance(value, dict | TextDocument) else None


Document = Annotated[
    Annotated[str, Tag("a text")] | Annotated[TextDocument, Tag("an object")],
    Discriminator(
        _form,
        custom_error_type="document",
        custom_error_message="must be a string or an object",
    ),
]


RankFields = Annotated[tuple[NonEmpty, ...], Field(fail_fast=True, min_length=1, max_length=64)]


class RerankRequest(BaseModel):
    """Documents, and the query by which they are ranked."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty
    query: Document
    documents: Annotated[tuple[Document, ...], Field(fail_fast=True)]
    top_n: Count | None = None
    return_documents: Flag | None = None
    max_tokens_per_doc: Count | None = Field(
        default=None, description="Cohere's: the tokens of each document that count."
    )
    max_chunks_per_doc: Count | None = Field(
        default=None, description="Cohere's v1: only 1 is done; a long document is cut."
    )
    relevant_spans: JsonValue = Field(default=None, description=SPANS_DESCRIPTION)
    priority: Priority | None = None
    truncation: Flag | None = Field(
        default=None, description="Whether a document that is too long is cut (true) or refused."
    )
    raw_scores: Flag | None = Field(
        default=None, description="Whether scores are the model's own, before its activation."
    )
    rank_fields: RankFields | None = Field(
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

    # What callers keep beside their texts may hold numbers that JSON has no word for.
    model_config = ConfigDict(ser_json_inf_nan="null")

    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[RerankResult]
    usage: RerankUsage
