"""The declaration of embedding: everything that differs from other workloads."""

from __future__ import annotations

from headpond.bundle.contract import Contract
from headpond.errors import PayloadTooLarge, StoreUnavailable
from headpond.record import Dim, Failure
from headpond_workloads.embedding.dialects import routes
from headpond_workloads.embedding.items import MAX_VALUES
from headpond_workloads.embedding.store import vector
from headpond_workloads.encoders.record import encoder_record, tokens_dim
from headpond_workloads.oip.errors import oip_unserved

record = encoder_record(
    name="embedding",
    summary="Vectors of texts.",
    routes=routes,
    noun="text",
    dims=(
        tokens_dim("text", "input"),
        Dim(name="values", summary="numbers in the vectors of one text", call_limit=MAX_VALUES),
    ),
    outputs="dimensions",
    quality="vectors equal sentence-transformers' in float32 to a cosine of 0.999",
    failures=(
        Failure(
            name="large_answer",
            summary="the vectors of all tokens of many texts are more than one answer holds",
            error=PayloadTooLarge,
        ),
        Failure(
            name="store_unavailable",
            summary="the vector store is down, slow, or takes only a part",
            error=StoreUnavailable,
        ),
    ),
    contracts=(
        Contract(name="input_ids", vouches_for="tokenizer or prompt"),
        Contract(name="vector", vouches_for="weights, precision, pooling or kernels"),
    ),
    exporter="headpond_workloads.encoders.onnx_export:export",
    unserved=oip_unserved,
    vector=vector,
)
