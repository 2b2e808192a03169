"""Reranking's HTTP routes, each in the dialect that its clients speak."""

from __future__ import annotations

from functools import partial

from headpond.dialect import Route
from headpond.engine import Json
from headpond_workloads.encoders.dialect_cohere import cohere_error
from headpond_workloads.encoders.dialect_tei import InfoExchange, tei_error
from headpond_workloads.encoders.schema_tei import INFO_PATH, Info
from headpond_workloads.reranking.dialect_cohere import CohereRerankExchange
from headpond_workloads.reranking.dialect_jina import RerankExchange
from headpond_workloads.reranking.dialect_tei import (
    PredictExchange,
    TeiRerankExchange,
    model_type,
)
from headpond_workloads.reranking.schema import RERANK_PATH, Ranking, RerankRequest
from headpond_workloads.reranking.schema_cohere import RERANK_PATH as COHERE_RERANK_PATH
from headpond_workloads.reranking.schema_cohere import CohereRanking, CohereRerankRequest
from headpond_workloads.reranking.schema_tei import (
    PREDICT_PATH,
    Predictions,
    PredictRequest,
    TeiRanking,
    TeiRerankRequest,
)
from headpond_workloads.reranking.schema_tei import RERANK_PATH as TEI_RERANK_PATH

_QUERY = "What turns the wheel?"
_DOCUMENTS: list[Json] = ["Water from the headpond turns it.", "The miller sleeps."]

routes: tuple[Route, ...] = (
    Route.json(
        RERANK_PATH,
        "Rank documents by how well they answer a query (Jina rerank).",
        request=RerankRequest,
        exchange=RerankExchange,
        response=Ranking,
        example={"query": _QUERY, "documents": _DOCUMENTS, "top_n": 1},
    ),
    Route.json(
        COHERE_RERANK_PATH,
        "Rank documents by how well they answer a query (Cohere rerank, v2).",
        request=CohereRerankRequest,
        exchange=CohereRerankExchange,
        response=CohereRanking,
        example={"query": _QUERY, "documents": _DOCUMENTS},
        fail=cohere_error,
    ),
    Route.json(
        TEI_RERANK_PATH,
        "Rank texts by how well they answer a query (TEI).",
        request=TeiRerankRequest,
        exchange=TeiRerankExchange,
        response=TeiRanking,
        example={"query": _QUERY, "texts": _DOCUMENTS},
        fail=tei_error,
    ),
    Route.json(
        PREDICT_PATH,
        "Classify texts or pairs of texts (TEI).",
        request=PredictRequest,
        exchange=PredictExchange,
        response=Predictions,
        example={"inputs": [_QUERY, "Water from the headpond turns it."]},
        fail=tei_error,
    ),
    Route.get(
        INFO_PATH,
        "Show what the only model served is (TEI).",
        exchange=partial(InfoExchange, model_type),
        response=Info,
        fail=tei_error,
    ),
)
