"""The declaration of embedding: everything that differs from other workloads."""

from __future__ import annotations

from headpond.bundle.contract import Contract
from headpond.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    Overloaded,
    PayloadTooLarge,
    StoreUnavailable,
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
from headpond_workloads.embedding.dialects import routes
from headpond_workloads.embedding.items import MAX_VALUES
from headpond_workloads.embedding.store import vector
from headpond_workloads.encoders.dialect_cohere import cohere_unserved
from headpond_workloads.encoders.dialect_tei import tei_unserved
from headpond_workloads.encoders.errors import EmptyInput
from headpond_workloads.encoders.schema_fields import MAX_BODY_BYTES, MAX_INPUTS
from headpond_workloads.oip.errors import oip_unserved


def cost(shape: Shape) -> Work:
    """Return the tokens to read."""
    return Work(input_tokens=shape["tokens"])


record = WorkloadRecord(
    name="embedding",
    summary="Vectors of texts.",
    routes=routes,
    request=RequestShape(
        dims=(
            Dim(
                name="tokens",
                summary="tokens of one text, with its prompt and special tokens",
                limit="context_tokens",
                param="input",
            ),
            Dim(
                name="values",
                summary="numbers in the vectors of one text",
                call_limit=MAX_VALUES,
            ),
        ),
        max_items=MAX_INPUTS,
        max_body_bytes=MAX_BODY_BYTES,
    ),
    units=(WorkUnit(name="input_tokens", summary="token that is read"),),
    cost=cost,
    symbols=("layers", "hidden", "heads", "context_tokens", "dimensions", "weight_bytes"),
    state=(
        StateTerm(name="activations", shape=("tokens", "hidden", 8), lifetime=Lifetime.FORWARD),
    ),
    batching=Formed(axis="tokens", budget=16_384, bucket_by=("bucket",)),
    throughput=(
        ThroughputUnit(
            unit="input_tokens",
            bounds=Bounds(total_s=2.0),
            quality="vectors equal sentence-transformers' in float32 to a cosine of 0.999",
        ),
    ),
    phases=(
        Phase(name="validate", kind=PhaseKind.HOST, summary="check the request"),
        Phase(name="tokenize", kind=PhaseKind.HOST, summary="prepend prompts, tokenize, cut"),
        Phase(name="queue", kind=PhaseKind.QUEUE, summary="wait for a batch"),
        Phase(name="forward", kind=PhaseKind.DEVICE, summary="encode, pool, normalise"),
        Phase(name="delivery", kind=PhaseKind.DELIVERY, summary="write the vectors"),
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
                summary="a text is longer than the model takes, and not to be cut",
                error=ContextLengthExceeded,
            ),
            Failure(
                name="large_answer",
                summary="the vectors of all tokens of many texts are more than one answer holds",
                error=PayloadTooLarge,
            ),
            Failure(
                name="empty",
                summary="there is no text, or one is empty: it is named",
                error=EmptyInput,
            ),
            Failure(
                name="bad_item",
                summary="one text of many can't be embedded: the call fails and names it",
                error=InvalidRequest,
            ),
            Failure(
                name="queue_full",
                summary="huge inputs fill the queue",
                error=Overloaded,
            ),
            Failure(
                name="queue_expired",
                summary="the deadline passes before the last text",
                error=DeadlineExceeded,
            ),
            Failure(
                name="not_finite",
                summary="the vector of a text holds NaN or infinity",
                error=EngineFailed,
            ),
            Failure(
                name="store_unavailable",
                summary="the vector store is down, slow, or takes only a part",
                error=StoreUnavailable,
            ),
        ),
    ),
    contracts=(
        Contract(name="input_ids", vouches_for="tokenizer or prompt"),
        Contract(name="vector", vouches_for="weights, precision, pooling or kernels"),
    ),
    engine="headpond_workloads.embedding.engine.load:load",
    exporter="headpond_workloads.encoders.onnx_export:export",
    tallies=(Tally(name="padded_tokens", summary="Tokens of padding that were computed."),),
    metric_aliases=(
        MetricAlias(name="te_queue_size", measure="waiting"),
        MetricAlias(name="te_request_duration", measure="total_s"),
        MetricAlias(name="te_request_queue_duration", measure="queue_s"),
        MetricAlias(name="te_request_tokenization_duration", measure="phase_s:tokenize"),
        MetricAlias(name="te_request_inference_duration", measure="phase_s:forward"),
    ),
    vector=vector,
    unserved=(*tei_unserved, *cohere_unserved, *oip_unserved),
)
