"""Wire types of what the server says over `/v1/realtime`: OpenAI's events, and ours."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from headpond_workloads.speech.schema import DurationUsage, TranscribedWord
from headpond_workloads.speech.schema_realtime import SessionAudio


class ServerEvent(BaseModel):
    """What all events of the server have; `event_id` is `event_<n>`, n from 1 in a session."""

    type: str
    event_id: str = ""


class Resumption(BaseModel):
    """How long a session waits for a client whose connection was lost."""

    window_s: float


class SessionState(BaseModel):
    """A session and its settings as they are in force."""

    id: str
    object: Literal["realtime.transcription_session"] = "realtime.transcription_session"
    type: Literal["transcription"] = "transcription"
    audio: SessionAudio
    include: list[str] | None = None
    resume: Resumption


class SessionEvent(ServerEvent):
    """The session began, or its settings changed."""

    type: Literal["session.created", "session.updated"]
    session: SessionState


class SessionResumed(ServerEvent):
    """The client came back: what it missed was sent, and the server waits for this append."""

    type: Literal["session.resumed"] = "session.resumed"
    session_id: str
    next_sequence: int


class SpeechStartedEvent(ServerEvent):
    """Speech began."""

    type: Literal["input_audio_buffer.speech_started"] = "input_audio_buffer.speech_started"
    audio_start_ms: int
    item_id: str


class SpeechStoppedEvent(ServerEvent):
    """Speech ended."""

    type: Literal["input_audio_buffer.speech_stopped"] = "input_audio_buffer.speech_stopped"
    audio_end_ms: int
    item_id: str


class BufferCommitted(ServerEvent):
    """The sound up to here is an item now."""

    type: Literal["input_audio_buffer.committed"] = "input_audio_buffer.committed"
    item_id: str
    previous_item_id: str | None


class BufferCleared(ServerEvent):
    """What was not committed is dropped."""

    type: Literal["input_audio_buffer.cleared"] = "input_audio_buffer.cleared"


class BufferAcknowledged(ServerEvent):
    """Everything up to this append is in final text, and need not be kept by the client."""

    type: Literal["input_audio_buffer.acknowledged"] = "input_audio_buffer.acknowledged"
    sequence: int
    audio_end_ms: int


class AudioContent(BaseModel):
    """The one part of an item."""

    type: Literal["input_audio"] = "input_audio"
    transcript: str | None = None


class AudioItem(BaseModel):
    """One utterance."""

    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["message"] = "message"
    status: Literal["completed"] = "completed"
    role: Literal["user"] = "user"
    content: list[AudioContent] = Field(default_factory=lambda: [AudioContent()])


class ItemEvent(ServerEvent):
    """An item was added, or is complete; its text comes by itself."""

    type: Literal["conversation.item.added", "conversation.item.done"]
    previous_item_id: str | None
    item: AudioItem


class TranscriptionDelta(ServerEvent):
    """More text of an item.

    Attributes:
        delta: Text that will not change; all deltas of an item are its transcript.
        revisable: What seems to follow; the next event's replaces it.
        audio_end_ms: Up to where the item has been heard.
    """

    type: Literal["conversation.item.input_audio_transcription.delta"] = (
        "conversation.item.input_audio_transcription.delta"
    )
    item_id: str
    content_index: int = 0
    delta: str
    revisable: str
    audio_end_ms: int


class TranscriptionCompleted(ServerEvent):
    """The text of an item, which never changes; what follows `usage` is ours."""

    type: Literal["conversation.item.input_audio_transcription.completed"] = (
        "conversation.item.input_audio_transcription.completed"
    )
    item_id: str
    content_index: int = 0
    transcript: str
    usage: DurationUsage
    audio_start_ms: int
    audio_end_ms: int
    words: list[TranscribedWord]
    confidence: float | None
    language: str | None


class FailureDetail(BaseModel):
    """Why an item has no text."""

    type: str
    code: str | None
    message: str
    param: str | None


class TranscriptionFailed(ServerEvent):
    """An item has no text, and will have none."""

    type: Literal["conversation.item.input_audio_transcription.failed"] = (
        "conversation.item.input_audio_transcription.failed"
    )
    item_id: str
    content_index: int = 0
    error: FailureDetail


class TranscriptionBehind(ServerEvent):
    """The text is this far behind the sound; the session is closed if that goes on."""

    type: Literal["transcription.behind"] = "transcription.behind"
    lag_ms: int


class ErrorDetail(FailureDetail):
    """What went wrong; `event_id` is the client's event that was at fault.

    Attributes:
        expected_sequence: With `sequence_gap`: the first append that did not come.
        next_sequence: With `sequence_gap`: the append that the server went on with.
        resumable: With a lost worker: whether the session goes on when the client sends
            again every append after `acknowledged_sequence`.
        retry_after_ms: When trying again makes sense.
    """

    event_id: str | None = None
    expected_sequence: int | None = None
    next_sequence: int | None = None
    resumable: bool | None = None
    acknowledged_sequence: int | None = None
    retry_after_ms: int | None = None


class ErrorEvent(ServerEvent):
    """Something went wrong; the session goes on unless the socket is closed after it."""

    type: Literal["error"] = "error"
    error: ErrorDetail
