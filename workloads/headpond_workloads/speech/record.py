"""The declaration of speech recognition: everything that differs from other workloads."""

from __future__ import annotations

from headpond.batching import Feed
from headpond.bundle.contract import Contract
from headpond.errors import (
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    Overloaded,
    PayloadTooLarge,
    RequestCancelled,
    WorkerLost,
)
from headpond.record import (
    Bounds,
    Continuous,
    Dim,
    Failure,
    Fit,
    Limiter,
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
from headpond_workloads.speech.compared import compared
from headpond_workloads.speech.dialects import routes
from headpond_workloads.speech.effort import efforts, process_bytes

MAX_AUDIO_MS = 2 * 3_600_000
"""The longest file or session; a bundle's `limits.audio_ms` may say less."""

_AHEAD_MS = 2000
"""Sound of a stream that waits; who sends more, faster than it is spoken, is held up."""


def cost(shape: Shape) -> Work:
    """Return how much there is to hear."""
    return Work(audio_ms=shape["audio_ms"])


_QUALITY = "word error rate equals the model's on whole utterances, stated in the bundle"

record = WorkloadRecord(
    name="speech",
    summary="Text of what is said in a recording, or in a stream while it is spoken.",
    routes=routes,
    request=RequestShape(
        dims=(
            Dim(
                name="audio_ms",
                summary="milliseconds of sound; of a stream, the most that may come",
                limit=MAX_AUDIO_MS,
                param="file",
            ),
        ),
        max_body_bytes=100 * 2**20,
    ),
    units=(WorkUnit(name="audio_ms", summary="millisecond of sound that was heard"),),
    cost=cost,
    symbols=("chunk_ms", "sample_rate_hz", "state_bytes", "weight_bytes"),
    # A stream's state does not grow with its length.
    state=(
        StateTerm(name="hearing", shape=("state_bytes",), dtype="uint8"),
        StateTerm(
            name="waiting_sound", shape=(_AHEAD_MS // 1000, "sample_rate_hz"), dtype="float32"
        ),
    ),
    batching=Continuous(
        axis="audio_ms",
        extent=("audio_ms",),
        granule="chunk_ms",
        step_budget=64_000,
        feed=Feed(rate_per_s=1000.0, ahead=_AHEAD_MS),
    ),
    throughput=(ThroughputUnit(unit="audio_ms", bounds=Bounds(gap_s=2.0), quality=_QUALITY),),
    phases=(
        Phase(name="validate", kind=PhaseKind.HOST, summary="check the request"),
        Phase(name="decode", kind=PhaseKind.HOST, summary="decode and resample a file"),
        Phase(name="queue", kind=PhaseKind.QUEUE, summary="wait for a place among the streams"),
        Phase(name="listen", kind=PhaseKind.DEVICE, summary="hear chunk after chunk"),
        Phase(name="delivery", kind=PhaseKind.DELIVERY, summary="hand the rest to the caller"),
    ),
    fit=Fit(
        devices=("cpu",),
        dtypes=("float32", "bfloat16"),
        limited_by=Limiter.COMPUTE,
        static_bytes=("weight_bytes",),
        process_bytes=process_bytes,
        efficiency=0.05,  # see docs/planning.md
    ),
    overload=Overload(
        queue_limit=Work(audio_ms=4 * 3_600_000),
        deadline_s=7200.0,
        wait_s=30.0,
        failures=(
            Failure(
                name="malformed",
                summary="a file is no sound, or a broken one; a stream's bytes make no samples",
                error=InvalidRequest,
            ),
            Failure(
                name="too_long",
                summary="a file is longer, or decodes to more, than may be",
                error=PayloadTooLarge,
            ),
            Failure(
                name="not_real_time",
                summary="one more stream would keep all of them from being heard in time",
                error=Overloaded,
            ),
            Failure(
                name="expired",
                summary="the deadline passes before the last word",
                error=DeadlineExceeded,
            ),
            Failure(
                name="disconnect",
                summary="the speaker leaves, or reads too slowly",
                error=RequestCancelled,
            ),
            Failure(
                name="lost_replica",
                summary="the replica that hears a stream dies; another hears what follows",
                error=WorkerLost,
            ),
            Failure(
                name="not_computed",
                summary="the model fails on one stream",
                error=EngineFailed,
            ),
        ),
    ),
    contracts=(
        Contract(name="speech", vouches_for="decoding, resampling or voice activity"),
        Contract(name="text", vouches_for="weights, tokens, precision or kernels"),
        Contract(name="words", vouches_for="times of words"),
    ),
    engine="headpond_workloads.speech.engine.load:load",
    compared=compared,
    efforts=efforts,
    panel="headpond_workloads.speech.panel",
    tallies=(
        Tally(name="utterances", summary="Utterances that were given final text."),
        Tally(name="partial_hypotheses", summary="Partial texts that were given."),
    ),
)
