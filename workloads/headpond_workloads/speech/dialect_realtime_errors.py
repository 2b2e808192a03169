"""Errors as events of `/v1/realtime`; after most of them the session goes on."""

from __future__ import annotations

from math import ceil

from headpond.errors import HeadpondError, InvalidRequest
from headpond_workloads.speech.dialect_realtime_sequence import Gap
from headpond_workloads.speech.schema_realtime_events import ErrorDetail, ErrorEvent

_MS_PER_S = 1000


class SequenceGap(InvalidRequest):
    """Appends are missing; the session goes on without them."""

    code = "sequence_gap"


class CommitEmpty(InvalidRequest):
    """There is too little sound to commit."""

    code = "input_audio_buffer_commit_empty"


class SessionExpired(InvalidRequest):
    """The session has lasted as long as it may; open another one."""

    code = "session_expired"


def error_event(error: HeadpondError, event_id: str | None = None) -> ErrorEvent:
    """Return an error as an event, about an event of the client if one was at fault."""
    return ErrorEvent(error=_detail(error, event_id))


def gap_event(gap: Gap, event_id: str | None) -> ErrorEvent:
    """Return what is said of appends that never came."""
    error = SequenceGap(
        f"append {gap.expected} did not come; going on with {gap.found}", param="sequence"
    )
    detail = _detail(error, event_id)
    detail.expected_sequence, detail.next_sequence = gap.expected, gap.found
    return ErrorEvent(error=detail)


def loss_event(error: HeadpondError, acknowledged: int) -> ErrorEvent:
    """Return what is said of a call that was lost amid its sound."""
    detail = _detail(error, None)
    detail.resumable, detail.acknowledged_sequence = True, acknowledged
    return ErrorEvent(error=detail)


def expiry_event(error: HeadpondError, acknowledged: int) -> ErrorEvent:
    """Return what is said last to a session that has lasted, or was sent, all that it may."""
    detail = _detail(SessionExpired(error.message), None)
    detail.acknowledged_sequence = acknowledged
    return ErrorEvent(error=detail)


def _detail(error: HeadpondError, event_id: str | None) -> ErrorDetail:
    wait_s = error.retry_after_s
    return ErrorDetail(
        type=error.kind,
        code=error.code,
        message=error.message,
        param=error.param,
        event_id=event_id,
        retry_after_ms=None if wait_s is None else ceil(wait_s * _MS_PER_S),
    )
