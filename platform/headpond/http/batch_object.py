"""A job as its owner sees it: OpenAI's batch, and how far it is."""

from __future__ import annotations

from dataclasses import asdict

from headpond.jobs.job import Job, JobStatus
from headpond.jobs_wire import (
    Batch,
    BatchError,
    BatchErrors,
    BatchInput,
    BatchOutput,
    BatchProgress,
    BatchUsage,
    RequestCounts,
)

_INPUT, _OUTPUT = "input_tokens", "output_tokens"


def batch_object(job: Job) -> Batch:
    """Return a job as callers see it."""
    return Batch(
        id=job.id,
        endpoint=job.endpoint,
        model=job.model,
        errors=_errors(job),
        input_file_id=job.input_file_id,
        completion_window=job.window,
        status=job.status.value,
        output_file_id=job.output_file_id,
        error_file_id=job.error_file_id,
        created_at=int(job.created_s),
        in_progress_at=_seconds(job.in_progress_s),
        expires_at=int(job.deadline_s),
        finalizing_at=_seconds(job.finalizing_s),
        completed_at=_ended(job, JobStatus.COMPLETED),
        failed_at=_ended(job, JobStatus.FAILED),
        expired_at=_ended(job, JobStatus.EXPIRED),
        cancelling_at=_seconds(job.cancelling_s),
        cancelled_at=_ended(job, JobStatus.CANCELLED),
        request_counts=RequestCounts(
            total=job.progress.total,
            completed=job.progress.completed,
            failed=job.progress.failed,
        ),
        usage=_usage(job),
        metadata=job.metadata or None,
        bundle=job.bundle,
        waits_for=job.waits_for,
        work=job.usage,
        progress=_progress(job),
        input=None if job.source is None else BatchInput(**asdict(job.source)),
        output=None if job.target is None else BatchOutput(**asdict(job.target)),
        manifest_url=None if job.target is None else job.manifest_key,
    )


def _errors(job: Job) -> BatchErrors | None:
    if not job.errors:
        return None
    listed = (
        BatchError(code=error.code, line=error.line, message=error.message, param=error.param)
        for error in job.errors
    )
    return BatchErrors(data=tuple(listed))


def _usage(job: Job) -> BatchUsage | None:
    """Return tokens, of workloads that count them."""
    if not {_INPUT, _OUTPUT} & set(job.usage):
        return None
    read, written = job.usage.get(_INPUT, 0), job.usage.get(_OUTPUT, 0)
    return BatchUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _progress(job: Job) -> BatchProgress:
    ends_s = job.progress.estimated_end_s
    return BatchProgress(
        work_total=job.progress.work_total,
        work_done=job.progress.work_done,
        work_per_s=job.progress.work_per_s,
        estimated_completion_at=_seconds(ends_s),
        on_time=None if ends_s is None else ends_s <= job.deadline_s,
    )


def _ended(job: Job, status: JobStatus) -> int | None:
    return _seconds(job.ended_s) if job.status is status else None


def _seconds(time_s: float | None) -> int | None:
    return None if time_s is None else int(time_s)
