"""Wire types of what a client sends over `/v1/realtime`: its events, and the session's settings.

In settings, null is the same as absent, except where it turns something off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from headpond_workloads.speech.schema import Language, PaddingMs, Prompt, SilenceMs, Threshold

REALTIME_PATH = "/v1/realtime"

MIN_RATE_HZ = 8_000
MAX_RATE_HZ = 96_000
MAX_EVENT_ID_CHARACTERS = 512
PCM_RATE_HZ = 24_000
G711_RATE_HZ = 8_000
_PCM = ("audio/pcm", None)


class ClientEvent(BaseModel):
    """What all events of a client have."""

    model_config = ConfigDict(frozen=True)

    type: str
    event_id: Annotated[str, Field(max_length=MAX_EVENT_ID_CHARACTERS)] | None = None


class Append(ClientEvent):
    """More sound, in base64; `sequence` numbers a client's appends from 1, if it likes."""

    type: Literal["input_audio_buffer.append"]
    audio: str
    sequence: Annotated[int, Field(strict=True, ge=1, lt=2**53)] | None = None


class CommitBuffer(ClientEvent):
    """End the utterance here."""

    type: Literal["input_audio_buffer.commit"]


class ClearBuffer(ClientEvent):
    """Drop what is not committed."""

    type: Literal["input_audio_buffer.clear"]


class SessionUpdate(ClientEvent):
    """Change some settings; what is left out stays as it is."""

    type: Literal["session.update", "transcription_session.update"]
    session: dict[str, JsonValue]


class Settings(BaseModel):
    """A part of the session's settings."""

    model_config = ConfigDict(frozen=True)

    nullable: ClassVar[frozenset[str]] = frozenset()
    """Fields that null turns off."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, fields: object) -> object:
        if not isinstance(fields, Mapping):
            return fields
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name in cls.nullable
        }

    @model_serializer(mode="wrap")
    def _show_what_is_set(self, shown: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        fields: dict[str, JsonValue] = shown(self)
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name in self.nullable
        }


class AudioFormat(Settings):
    """How sound is written; `encoding` and `channels` are ours, and for PCM alone."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"] = "audio/pcm"
    rate: Annotated[int, Field(strict=True, ge=MIN_RATE_HZ, le=MAX_RATE_HZ)] | None = None
    encoding: Literal["pcm16", "float32"] | None = None
    channels: Annotated[int, Field(strict=True, ge=1, le=2)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_rate(cls, fields: object) -> object:
        """Say at which rate PCM is, as the others have but one."""
        if not isinstance(fields, Mapping) or fields.get("rate") is not None:
            return fields
        return {**fields, "rate": PCM_RATE_HZ} if fields.get("type") in _PCM else fields

    @model_validator(mode="after")
    def _fits(self) -> AudioFormat:
        if self.type == "audio/pcm":
            return self
        if self.rate not in (None, G711_RATE_HZ):
            raise ValueError(f"G.711 is sound at {G711_RATE_HZ} Hz")
        if self.encoding is not None or self.channels not in (None, 1):
            raise ValueError("encoding and channels are for audio/pcm")
        return self


class TranscriptionSettings(Settings):
    """What the recogniser is told."""

    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    language: Language | None = None
    prompt: Prompt | None = None
    delay: str | None = None
    keywords: tuple[str, ...] | None = None
    languages: tuple[str, ...] | None = None


class TurnDetection(Settings):
    """When an utterance ends by itself; the fields of OpenAI's conversations do nothing here."""

    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: Threshold = 0.5
    prefix_padding_ms: PaddingMs = 300
    silence_duration_ms: SilenceMs = 500
    create_response: bool | None = None
    interrupt_response: bool | None = None
    idle_timeout_ms: float | None = None
    eagerness: str | None = None


class AudioInput(Settings):
    """Everything about the sound that comes in."""

    nullable: ClassVar[frozenset[str]] = frozenset({"turn_detection"})

    format: AudioFormat = Field(default_factory=lambda: AudioFormat(rate=PCM_RATE_HZ))
    noise_reduction: Mapping[str, JsonValue] | None = None
    transcription: TranscriptionSettings = Field(default_factory=TranscriptionSettings)
    turn_detection: TurnDetection | None = Field(default_factory=TurnDetection)


class SessionAudio(Settings):
    """Sound in; none goes out."""

    input: AudioInput = Field(default_factory=AudioInput)


class SessionSettings(Settings):
    """All settings of a session."""

    type: Literal["transcription"] = "transcription"
    audio: SessionAudio = Field(default_factory=SessionAudio)
    include: Annotated[tuple[str, ...], Field(max_length=16)] | None = None


class SessionEnvelope(BaseModel):
    """Settings where a client writes them, so that errors name their path."""

    model_config = ConfigDict(frozen=True)

    session: SessionSettings
