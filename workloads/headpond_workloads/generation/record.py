"""The declaration of text generation: everything that differs from other workloads."""

from __future__ import annotations

from headpond.bundle.contract import Contract
from headpond.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    EngineFailed,
    Overloaded,
    RequestCancelled,
)
from headpond.record import (
    Bounds,
    Continuous,
    Dim,
    Failure,
    Fit,
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
from headpond.state import StateTerm
from headpond.units import Work, WorkUnit
from headpond_workloads.generation.compared import compared
from headpond_workloads.generation.dialects import routes
from headpond_workloads.generation.effort import efforts, process_bytes
from headpond_workloads.generation.schema_fields import MAX_ITEMS


def cost(shape: Shape) -> Work:
    """Return the tokens to read and to write.

    A prompt that is cached whole still costs one input token: the last one is computed
    again for its logits.
    """
    uncached = max(1, shape["prompt_tokens"] - shape["cached_tokens"])
    return Work(input_tokens=uncached, output_tokens=shape["max_output_tokens"])


_OPERATION = "chat"
_GEN_AI = {
    "gen_ai_operation_name": _OPERATION,
    "gen_ai_provider_name": "headpond",
    "gen_ai_request_model": "{model}",
}
"""Labels by OpenTelemetry's conventions for generative AI."""

_QUALITY = "greedy tokens equal transformers' generate in float32"

record = WorkloadRecord(
    name="generation",
    summary="Text from a conversation, a text or token IDs.",
    routes=routes,
    request=RequestShape(
        dims=(
            Dim(
                name="prompt_tokens",
                summary="tokens of the prompt, after the chat template",
                limit="context_tokens",
                param="prompt",
            ),
            Dim(
                name="max_output_tokens",
                summary="the most tokens to generate",
                limit="context_tokens",
                param="max_tokens",
            ),
            Dim(name="cached_tokens", summary="prompt tokens whose keys and values are held"),
        ),
        max_items=MAX_ITEMS,
    ),
    units=(
        WorkUnit(name="input_tokens", summary="prompt token that was not cached", weight=0.15),
        WorkUnit(name="output_tokens", summary="generated token"),
    ),
    cost=cost,
    symbols=(
        "layers",
        "kv_heads",
        "head_dim",
        "context_tokens",
        "vocab_tokens",
        "weight_bytes",
        "layer_weights",
        "head_weights",
        "read_bytes",
        "block_tokens",
    ),
    state=(
        StateTerm(name="kv_cache", shape=("layers", 2, "tokens", "kv_heads", "head_dim")),
        StateTerm(name="token_ids", shape=("tokens",), dtype="int64"),
        StateTerm(name="penalty_counts", shape=("tokens",), dtype="int64"),
        StateTerm(name="output_buffer", shape=("max_output_tokens", 8), dtype="uint8"),
    ),
    batching=Continuous(
        axis="tokens",
        extent=("prompt_tokens", "max_output_tokens"),
        first_phase="prompt_tokens",
        cached="cached_tokens",
        granule="block_tokens",
        step_budget=512,
    ),
    throughput=(
        ThroughputUnit(
            unit="output_tokens", bounds=Bounds(first_output_s=2.0, gap_s=0.2), quality=_QUALITY
        ),
        ThroughputUnit(unit="input_tokens", bounds=Bounds(first_output_s=2.0), quality=_QUALITY),
    ),
    phases=(
        Phase(name="validate", kind=PhaseKind.HOST, summary="check the request"),
        Phase(name="tokenize", kind=PhaseKind.HOST, summary="render the template, tokenize"),
        Phase(name="queue", kind=PhaseKind.QUEUE, summary="wait for KV blocks and a turn"),
        Phase(name="prefill", kind=PhaseKind.DEVICE, summary="compute the prompt in chunks"),
        Phase(name="decode", kind=PhaseKind.DEVICE, summary="generate token by token"),
        Phase(name="release", kind=PhaseKind.HOST, summary="free the KV blocks"),
        Phase(name="delivery", kind=PhaseKind.DELIVERY, summary="hand the rest to the caller"),
    ),
    fit=Fit(
        devices=("cpu", "cuda"),
        dtypes=("bfloat16", "float16", "float32"),
        limited_by=Limiter.MEMORY_BANDWIDTH,
        static_bytes=("weight_bytes",),
        process_bytes=process_bytes,
        tensor_parallel=True,
    ),
    overload=Overload(
        queue_limit=Work(input_tokens=131_072, output_tokens=65_536),
        deadline_s=300.0,
        wait_s=10.0,
        failures=(
            Failure(
                name="context_exceeded",
                summary="the prompt, or the prompt with its output, is longer than the context",
                error=ContextLengthExceeded,
            ),
            Failure(
                name="kv_exhausted",
                summary="long prompts hold every KV block and the queue is full behind them",
                error=Overloaded,
            ),
            Failure(
                name="queue_expired",
                summary="the deadline passes before the last token",
                error=DeadlineExceeded,
            ),
            Failure(
                name="disconnect",
                summary="the reader leaves, or reads too slowly, while tokens are generated",
                error=RequestCancelled,
            ),
            Failure(
                name="not_finite",
                summary="the logits of one sequence hold NaN or infinity",
                error=EngineFailed,
            ),
        ),
    ),
    contracts=(
        Contract(name="input_ids", vouches_for="tokenizer or template"),
        Contract(name="output_ids", vouches_for="weights, precision or kernels"),
        Contract(name="text", vouches_for="detokenization"),
    ),
    engine="headpond_workloads.generation.engine.load:load",
    compared=compared,
    efforts=efforts,
    tallies=(
        Tally(name="prefix_cache_queries", summary="Prompt tokens looked up in the prefix cache."),
        Tally(name="prefix_cache_hits", summary="Prompt tokens found there."),
        Tally(name="draft_tokens", summary="Tokens that were drafted."),
        Tally(name="accepted_draft_tokens", summary="Drafted tokens that were accepted."),
    ),
    gen_ai=GenAi(
        operation=_OPERATION,
        usage={
            "input_tokens": "gen_ai.usage.input_tokens",
            "output_tokens": "gen_ai.usage.output_tokens",
        },
    ),
    metric_aliases=(
        MetricAlias(
            name="gen_ai_server_request_duration_seconds", measure="total_s", labels=_GEN_AI
        ),
        MetricAlias(
            name="gen_ai_server_time_to_first_token_seconds",
            measure="first_output_s",
            labels=_GEN_AI,
        ),
        MetricAlias(
            name="gen_ai_server_time_per_output_token_seconds", measure="gap_s", labels=_GEN_AI
        ),
        MetricAlias(name="vllm:num_requests_running", measure="running"),
        MetricAlias(name="vllm:num_requests_waiting", measure="waiting"),
        MetricAlias(name="vllm:kv_cache_usage_perc", measure="state_used_ratio"),
        MetricAlias(name="vllm:num_preemptions", measure="preemptions"),
        MetricAlias(name="vllm:prefix_cache_queries", measure="tally:prefix_cache_queries"),
        MetricAlias(name="vllm:prefix_cache_hits", measure="tally:prefix_cache_hits"),
        MetricAlias(name="vllm:spec_decode_num_draft_tokens", measure="tally:draft_tokens"),
        MetricAlias(
            name="vllm:spec_decode_num_accepted_tokens", measure="tally:accepted_draft_tokens"
        ),
        MetricAlias(name="vllm:prompt_tokens", measure="work:input_tokens"),
        MetricAlias(name="vllm:generation_tokens", measure="work:output_tokens"),
        MetricAlias(name="vllm:request_success", measure="finished"),
        MetricAlias(name="vllm:admission_rejections", measure="refused"),
        MetricAlias(name="vllm:time_to_first_token_seconds", measure="first_output_s"),
        MetricAlias(name="vllm:inter_token_latency_seconds", measure="gap_s"),
        MetricAlias(name="vllm:request_time_per_output_token_seconds", measure="gap_s"),
        MetricAlias(name="vllm:e2e_request_latency_seconds", measure="total_s"),
        MetricAlias(name="vllm:request_queue_time_seconds", measure="queue_s"),
        MetricAlias(name="vllm:request_prefill_time_seconds", measure="phase_s:prefill"),
        MetricAlias(name="vllm:request_decode_time_seconds", measure="phase_s:decode"),
    ),
    panel="headpond_workloads.generation.panel",
)
