"""The declaration of reranking: everything that differs from other workloads."""

from __future__ import annotations

from headpond.bundle.contract import Contract
from headpond.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    Overloaded,
)
from headpond.record import (
    Bounds,
    Dim,
    Failure,
    Fit,
    Formed,
    Limiter,
    MetricAlias,
    Overload,
    Phase,
    PhaseKind,
    RequestShape,
    Shape,
    Tally,
    ThroughputUnit,
    WorkloadRecord,
)
from headpond.state import Lifetime, StateTerm
from headpond.units import Work, WorkUnit
from headpond_workloads.encoders.dialect_cohere import cohere_unserved
from headpond_workloads.encoders.dialect_tei import tei_unserved
from headpond_workloads.encoders.errors import EmptyInput
from headpond_workloads.encoders.schema_fields import MAX_BODY_BYTES, MAX_INPUTS
from headpond_workloads.reranking.dialects import routes


def cost(shape: Shape) -> Work:
    """Return the tokens to read: of the query too, once for each document."""
    return Work(input_tokens=shape["tokens"])


record = WorkloadRecord(
    name="reranking",
    summary="How well documents answer a query, and labels of texts.",
    routes=routes,
    request=RequestShape(
        dims=(
            Dim(
                name="tokens",
                summary="tokens of one pair: query, document and special tokens",
                limit="context_tokens",
                param="documents",
            ),
        ),
        max_items=MAX_INPUTS,
        max_body_bytes=MAX_BODY_BYTES,
    ),
    units=(WorkUnit(name="input_tokens", summary="token that is read"),),
    cost=cost,
    symbols=("layers", "hidden", "heads", "context_tokens", "labels", "weight_bytes"),
    state=(
        StateTerm(name="activations", shape=("tokens", "hidden", 8), lifetime=Lifetime.FORWARD),
    ),
    batching=Formed(axis="tokens", budget=16_384, bucket_by=("bucket",)),
    throughput=(
        ThroughputUnit(
            unit="input_tokens",
            bounds=Bounds(total_s=2.0),
            quality="scores equal sentence-transformers' CrossEncoder in float32 to 0.001",
        ),
    ),
    phases=(
        Phase(name="validate", kind=PhaseKind.HOST, summary="check the request"),
        Phase(name="tokenize", kind=PhaseKind.HOST, summary="tokenize the pairs, cut"),
        Phase(name="queue", kind=PhaseKind.QUEUE, summary="wait for a batch"),
        Phase(name="forward", kind=PhaseKind.DEVICE, summary="encode and score"),
        Phase(name="delivery", kind=PhaseKind.DELIVERY, summary="order and write the scores"),
    ),
    fit=Fit(
        devices=("cpu", "cuda"),
        dtypes=("bfloat16", "float16", "float32"),
        limited_by=Limiter.COMPUTE,
        static_bytes=("weight_bytes",),
    ),
    overload=Overload(
        queue_limit=Work(input_tokens=2_097_152),
        deadline_s=60.0,
        wait_s=10.0,
        failures=(
            Failure(
                name="too_long",
                summary="a pair is longer than the model takes, and not to be cut",
                error=ContextLengthExceeded,
            ),
            Failure(
                name="empty",
                summary="the query is empty, or there are no documents: it is named",
                error=EmptyInput,
            ),
            Failure(
                name="bad_item",
                summary="one pair of many can't be scored: the call fails and names it",
                error=InvalidRequest,
            ),
            Failure(
                name="queue_full",
                summary="long lists of documents fill the queue",
                error=Overloaded,
            ),
            Failure(
                name="queue_expired",
                summary="the deadline passes before the last pair",
                error=DeadlineExceeded,
            ),
            Failure(
                name="not_finite",
                summary="the score of a pair is NaN or infinite",
                error=EngineFailed,
            ),
        ),
    ),
    contracts=(
        Contract(name="input_ids", vouches_for="tokenizer or pair template"),
        Contract(name="scores", vouches_for="weights, precision or kernels"),
    ),
    engine="headpond_workloads.reranking.engine.load:load",
    exporter="headpond_workloads.reranking.engine.exporter:export",
    tallies=(Tally(name="padded_tokens", summary="Tokens of padding that were computed."),),
    metric_aliases=(
        MetricAlias(name="te_queue_size", measure="waiting"),
        MetricAlias(name="te_request_duration", measure="total_s"),
        MetricAlias(name="te_request_queue_duration", measure="queue_s"),
        MetricAlias(name="te_request_tokenization_duration", measure="phase_s:tokenize"),
        MetricAlias(name="te_request_inference_duration", measure="phase_s:forward"),
    ),
    unserved=(*tei_unserved, *cohere_unserved),
)
