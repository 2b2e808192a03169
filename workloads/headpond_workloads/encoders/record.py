"""The record of a workload over a text encoder: what is alike, whatever is made of the texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headpond.bundle.contract import Contract
from headpond.dialect import Route, Unserved
from headpond.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    Overloaded,
)
from headpond.record import (
    Bounds,
    Compared,
    Dim,
    Failure,
    Fit,
    Formed,
    GenAi,
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
from headpond_workloads.encoders.effort import efforts, process_bytes
from headpond_workloads.encoders.errors import EmptyInput
from headpond_workloads.encoders.schema_fields import MAX_BODY_BYTES, MAX_INPUTS


def cost(shape: Shape) -> Work:
    """Return the tokens to read."""
    return Work(input_tokens=shape["tokens"])


def encoder_record(  # noqa: PLR0913 - a declaration, by keyword
    *,
    name: str,
    summary: str,
    routes: tuple[Route, ...],
    noun: str,
    dims: tuple[Dim, ...],
    outputs: str,
    quality: str,
    contracts: tuple[Contract, ...],
    exporter: str,
    compared: Compared,
    failures: Sequence[Failure] = (),
    unserved: Sequence[Unserved] = (),
    vector: Callable[[object], Sequence[float]] | None = None,
    operation: str | None = None,
) -> WorkloadRecord:
    """Return a record whose work is the tokens of inputs that are encoded in one forward.

    Args:
        name: As in the record; the engine is loaded by the package's `engine.load`, and the
            panel is its `panel`.
        summary: As in the record.
        routes: As in the record.
        noun: What one item is: `text`, `pair`.
        dims: Beside what they are, `tokens` among them.
        outputs: The symbol that says how many numbers the model makes of an item.
        quality: What equals which reference.
        contracts: As in the record.
        exporter: As in the record.
        compared: As in the record.
        failures: Beside those that every such workload has.
        unserved: Beside those of TEI and Cohere.
        vector: As in the record.
        operation: What OpenTelemetry's conventions for generative AI call it, if they do.
    """
    return WorkloadRecord(
        name=name,
        summary=summary,
        routes=routes,
        request=RequestShape(dims=dims, max_items=MAX_INPUTS, max_body_bytes=MAX_BODY_BYTES),
        units=(WorkUnit(name="input_tokens", summary="token that is read"),),
        cost=cost,
        symbols=("layers", "hidden", "heads", "context_tokens", outputs, "weight_bytes"),
        state=(
            StateTerm(name="activations", shape=("tokens", "hidden", 8), lifetime=Lifetime.FORWARD),
        ),
        batching=Formed(axis="tokens", budget=16_384, bucket_by=("bucket",)),
        throughput=(
            ThroughputUnit(unit="input_tokens", bounds=Bounds(total_s=2.0), quality=quality),
        ),
        phases=(
            Phase(name="validate", kind=PhaseKind.HOST, summary="check the request"),
            Phase(name="tokenize", kind=PhaseKind.HOST, summary=f"tokenize each {noun}, cut it"),
            Phase(name="queue", kind=PhaseKind.QUEUE, summary="wait for a batch"),
            Phase(name="forward", kind=PhaseKind.DEVICE, summary="encode; make the outputs"),
            Phase(name="delivery", kind=PhaseKind.DELIVERY, summary="write the outputs"),
        ),
        fit=Fit(
            devices=("cpu", "cuda"),
            dtypes=("bfloat16", "float16", "float32"),
            limited_by=Limiter.COMPUTE,
            static_bytes=("weight_bytes",),
            process_bytes=process_bytes,
        ),
        overload=Overload(
            queue_limit=Work(input_tokens=2_097_152),
            deadline_s=60.0,
            wait_s=10.0,
            failures=(*_failures(noun), *failures),
        ),
        contracts=contracts,
        engine=f"headpond_workloads.{name}.engine.load:load",
        efforts=efforts,
        exporter=exporter,
        compared=compared,
        tallies=(Tally(name="padded_tokens", summary="Tokens of padding that were computed."),),
        gen_ai=GenAi(operation=operation, usage={"input_tokens": "gen_ai.usage.input_tokens"}),
        metric_aliases=(
            MetricAlias(
                name="gen_ai_server_request_duration_seconds",
                measure="total_s",
                labels={
                    "gen_ai_operation_name": operation or name,
                    "gen_ai_provider_name": "headpond",
                    "gen_ai_request_model": "{model}",
                },
            ),
            MetricAlias(name="te_queue_size", measure="waiting"),
            MetricAlias(name="te_request_duration", measure="total_s"),
            MetricAlias(name="te_request_queue_duration", measure="queue_s"),
            MetricAlias(name="te_request_tokenization_duration", measure="phase_s:tokenize"),
            MetricAlias(name="te_request_inference_duration", measure="phase_s:forward"),
        ),
        vector=vector,
        panel=f"headpond_workloads.{name}.panel",
        unserved=(*tei_unserved, *cohere_unserved, *unserved),
    )


def tokens_dim(noun: str, param: str) -> Dim:
    """Return the dimension that every such workload has: the tokens of one item."""
    summary = f"tokens of one {noun}, with all that is read along with it"
    return Dim(name="tokens", summary=summary, limit="context_tokens", param=param)


def _failures(noun: str) -> tuple[Failure, ...]:
    return (
        Failure(
            name="too_long",
            summary=f"a {noun} is longer than the model takes, and not to be cut",
            error=ContextLengthExceeded,
        ),
        Failure(
            name="empty",
            summary="a list is empty, or a text where one is needed: it is named",
            error=EmptyInput,
        ),
        Failure(
            name="bad_item",
            summary=f"one {noun} of many can't be computed: the call fails and names it",
            error=InvalidRequest,
        ),
        Failure(name="queue_full", summary="long lists fill the queue", error=Overloaded),
        Failure(
            name="queue_expired",
            summary=f"the deadline passes before the last {noun}",
            error=DeadlineExceeded,
        ),
        Failure(
            name="not_finite",
            summary=f"what one {noun} comes to holds NaN or infinity",
            error=EngineFailed,
        ),
    )
