"""The declaration of reranking: everything that differs from other workloads."""

from __future__ import annotations

from headpond.bundle.contract import Contract
from headpond_workloads.encoders.record import encoder_record, tokens_dim
from headpond_workloads.reranking.dialects import routes

record = encoder_record(
    name="reranking",
    summary="How well documents answer a query, and labels of texts.",
    routes=routes,
    noun="pair",
    dims=(tokens_dim("pair", "documents"),),
    outputs="labels",
    quality="scores equal sentence-transformers' CrossEncoder in float32 to 0.001",
    contracts=(
        Contract(name="input_ids", vouches_for="tokenizer or pair template"),
        Contract(name="scores", vouches_for="weights, precision or kernels"),
    ),
    exporter="headpond_workloads.reranking.engine.exporter:export",
)
