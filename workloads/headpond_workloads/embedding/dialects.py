"""Embedding's HTTP routes, each in the dialect that its clients speak."""

from __future__ import annotations

from functools import partial

from headpond.dialect import Route
from headpond_workloads.embedding.dialect_cohere import EmbedExchange, embed_error
from headpond_workloads.embedding.dialect_openai import EmbeddingExchange
from headpond_workloads.embedding.dialect_tei import (
    SimilarityExchange,
    TeiEmbedAllExchange,
    TeiEmbedExchange,
    model_type,
)
from headpond_workloads.embedding.schema import (
    EMBEDDINGS_PATH,
    EmbeddingList,
    EmbeddingRequest,
)
from headpond_workloads.embedding.schema_cohere import EMBED_PATH, EmbedRequest, EmbedResponse
from headpond_workloads.embedding.schema_tei import (
    EMBED_ALL_PATH,
    SIMILARITY_PATH,
    Similarities,
    SimilarityRequest,
    TeiEmbeddings,
    TeiEmbedRequest,
    TeiTokenEmbeddings,
)
from headpond_workloads.embedding.schema_tei import EMBED_PATH as TEI_EMBED_PATH
from headpond_workloads.embedding.tensors import adapter
from headpond_workloads.encoders.dialect_tei import InfoExchange, tei_error
from headpond_workloads.encoders.schema_tei import INFO_PATH, Info
from headpond_workloads.oip.routes import oip_routes

_POND = "Water is held above the mill."

routes: tuple[Route, ...] = (
    Route.json(
        EMBEDDINGS_PATH,
        "Turn texts into vectors (OpenAI embeddings).",
        request=EmbeddingRequest,
        exchange=EmbeddingExchange,
        response=EmbeddingList,
        example={"input": [_POND, "The wheel turns."]},
    ),
    Route.json(
        EMBED_PATH,
        "Turn texts into vectors of several forms (Cohere embed, v2).",
        request=EmbedRequest,
        exchange=EmbedExchange,
        response=EmbedResponse,
        example={"texts": [_POND], "input_type": "search_document", "embedding_types": ["int8"]},
        fail=embed_error,
    ),
    Route.json(
        TEI_EMBED_PATH,
        "Turn texts into vectors (TEI).",
        request=TeiEmbedRequest,
        exchange=TeiEmbedExchange,
        response=TeiEmbeddings,
        example={"inputs": _POND},
        fail=tei_error,
    ),
    Route.json(
        EMBED_ALL_PATH,
        "Turn each token of texts into a vector (TEI).",
        request=TeiEmbedRequest,
        exchange=TeiEmbedAllExchange,
        response=TeiTokenEmbeddings,
        example={"inputs": _POND},
        fail=tei_error,
    ),
    Route.json(
        SIMILARITY_PATH,
        "Tell how like a text others are (TEI).",
        request=SimilarityRequest,
        exchange=SimilarityExchange,
        response=Similarities,
        example={"inputs": {"source_sentence": _POND, "sentences": ["A dam makes a lake."]}},
        fail=tei_error,
    ),
    Route.get(
        INFO_PATH,
        "Show what the only model served is (TEI).",
        exchange=partial(InfoExchange, model_type),
        response=Info,
        fail=tei_error,
    ),
    *oip_routes(adapter),
)
