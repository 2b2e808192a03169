"""Wire types of Cohere's `POST /v2/rerank`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headpond_workloads.encoders.schema_cohere import Meta, Priority
from headpond_workloads.encoders.schema_fields import Count, NonEmpty, TextList
from headpond_workloads.reranking.schema_spans import SPANS_DESCRIPTION

RERANK_PATH = "/v2/rerank"

DEFAULT_DOCUMENT_TOKENS = 4096


class CohereRerankRequest(BaseModel):
    """Documents, and the query by which they are ranked."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty
    query: str
    documents: TextList
    top_n: Count | None = None
    max_tokens_per_doc: Count | None = None
    relevant_spans: JsonValue = Field(default=None, description=SPANS_DESCRIPTION)
    priority: Priority | None = None


class CohereRerankResult(BaseModel):
    """A document by its index in the request, and how well it answers the query."""

    index: int
    relevance_score: float


class CohereRanking(BaseModel):
    """The answer: the best document first."""

    id: str
    results: list[CohereRerankResult]
    meta: Meta
