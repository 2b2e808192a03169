"""Wire types of Cohere's `POST /v2/embed`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headpond_workloads.embedding.schema_texts import Dimensions
from headpond_workloads.embedding.store import STORE_DESCRIPTION, StoreRequest
from headpond_workloads.encoders.schema_cohere import Meta, Priority
from headpond_workloads.encoders.schema_fields import Count, NonEmpty, TextList

EMBED_PATH = "/v2/embed"

InputType = Literal["search_document", "search_query", "classification", "clustering", "image"]
EmbeddingType = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]


class EmbedPart(BaseModel):
    """A part of an input: text; images are refused."""

    model_config = ConfigDict(frozen=True)

    type: Literal["text", "image_url"]
    text: str | None = None


class EmbedContent(BaseModel):
    """An input in parts; their texts are joined by line breaks."""

    model_config = ConfigDict(frozen=True)

    content: Annotated[tuple[EmbedPart, ...], Field(fail_fast=True)]


class EmbedRequest(BaseModel):
    """Texts or inputs, exactly one of them, whose vectors are asked for."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty
    texts: TextList | None = None
    inputs: Annotated[tuple[EmbedContent, ...], Field(fail_fast=True)] | None = None
    images: TextList | None = None
    input_type: InputType | None = None
    embedding_types: tuple[EmbeddingType, ...] | None = None
    output_dimension: Dimensions | None = None
    truncate: Literal["NONE", "START", "END"] | None = None
    max_tokens: Count | None = None
    priority: Priority | None = None

    store: StoreRequest | None = Field(default=None, description=STORE_DESCRIPTION)


class EmbeddingsByType(BaseModel):
    """The vectors in each form that was asked for; the others are left out."""

    float_: list[list[float]] | None = Field(default=None, alias="float")
    int8: list[list[int]] | None = None
    uint8: list[list[int]] | None = None
    binary: list[list[int]] | None = None
    ubinary: list[list[int]] | None = None
    base64: list[str] | None = None


class EmbedResponse(BaseModel):
    """The answer: vectors in the order of the texts."""

    response_type: Literal["embeddings_by_type"]
    id: str
    embeddings: EmbeddingsByType
    texts: list[str]
    meta: Meta
