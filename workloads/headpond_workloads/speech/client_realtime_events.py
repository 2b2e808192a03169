"""What the realtime client sends and reads: events as types, and when all is text."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from headpond.client.errors import ResponseInvalid, error_in
from headpond_workloads.speech.schema_realtime import Append, ClearBuffer, CommitBuffer
from headpond_workloads.speech.schema_realtime_events import (
    BufferAcknowledged,
    BufferCleared,
    BufferCommitted,
    ErrorEvent,
    ItemEvent,
    ServerEvent,
    SessionEvent,
    SessionResumed,
    SpeechStartedEvent,
    SpeechStoppedEvent,
    TranscriptionBehind,
    TranscriptionCompleted,
    TranscriptionDelta,
    TranscriptionFailed,
)

_KNOWN = Annotated[
    SessionEvent
    | SessionResumed
    | SpeechStartedEvent
    | SpeechStoppedEvent
    | BufferCommitted
    | BufferCleared
    | BufferAcknowledged
    | ItemEvent
    | TranscriptionDelta
    | TranscriptionCompleted
    | TranscriptionFailed
    | TranscriptionBehind
    | ErrorEvent,
    Field(discriminator="type"),
]
RealtimeEvent = _KNOWN | ServerEvent
"""One event of the server; `ServerEvent` itself where a newer one says what we don't know."""

_EVENTS: TypeAdapter[RealtimeEvent] = TypeAdapter(
    Annotated[RealtimeEvent, Field(union_mode="left_to_right")]
)
LAST_COMMIT = "last"
"""What the commit is called behind which no sound comes."""
AGAIN = "again"
"""What a commit is called that is sent again, where the server may have had it."""
NOTHING_TO_COMMIT = "input_audio_buffer_commit_empty"


def parsed(text: str) -> RealtimeEvent:
    """Return a message of the server.

    Raises:
        ResponseInvalid: It is no event.
    """
    try:
        return _EVENTS.validate_json(text)
    except ValidationError:
        pass
    # Not chained: pydantic repeats the data it could not read.
    raise ResponseInvalid("The server sent a message that is none of the API's.")


def append_text(sound: bytes, sequence: int) -> str:
    """Return the event that sends more sound."""
    audio = b64encode(sound).decode()
    event = Append(type="input_audio_buffer.append", audio=audio, sequence=sequence)
    return event.model_dump_json(exclude_none=True)


def commit_text(event_id: str | None = None) -> str:
    """Return the event that ends an utterance."""
    event = CommitBuffer(type="input_audio_buffer.commit", event_id=event_id)
    return event.model_dump_json(exclude_none=True)


def clear_text() -> str:
    """Return the event that drops what is not committed."""
    return ClearBuffer(type="input_audio_buffer.clear").model_dump_json(exclude_none=True)


class Heard:
    """How much of a stretch of sound is text: all of it, when `over`.

    The sound's numbers tell: what is acknowledged is in final text. Where the last commit finds
    nothing that is not an utterance yet, those that were begun are waited for.

    Attributes:
        over: Whether all of the sound is text.
        stopped: Whether nobody wants to know any more.
        failure: Why there will be no more sound.
    """

    def __init__(self) -> None:
        """Begin with nothing heard."""
        self.over = False
        self.stopped = False
        self.failure: BaseException | None = None
        self._last: int | None = None
        self._nothing_left = False
        self._waiting: set[str] = set()

    def end(self, sequence: int) -> None:
        """Take in that the sound ends with the append `sequence`."""
        self._last = sequence

    def take(self, event: RealtimeEvent) -> None:
        """Take in an event.

        Raises:
            HeadpondError: It is an error that is none of ours.
        """
        if isinstance(event, SpeechStartedEvent | BufferCommitted):
            self._waiting.add(event.item_id)
        elif isinstance(event, TranscriptionFailed):
            # Its sound comes again, and the last commit with it, or an error follows.
            self._waiting.discard(event.item_id)
            self._nothing_left = False
        elif isinstance(event, TranscriptionCompleted):
            self._waiting.discard(event.item_id)
        elif isinstance(event, BufferAcknowledged):
            self.over = self._last is not None and event.sequence >= self._last
        elif isinstance(event, ErrorEvent):
            if event.error.event_id != LAST_COMMIT or event.error.code != NOTHING_TO_COMMIT:
                raise error_in(event.model_dump_json()) or ResponseInvalid()
            self._nothing_left = True
        if self._nothing_left and not self._waiting:
            self.over = True
