"""Wire types of `POST /v1/audio/transcriptions` and of its refused sister."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)
from pydantic_core import PydanticCustomError

from headpond.form_field import OfForm
from headpond.pattern import spelled

TRANSCRIPTIONS_PATH = "/v1/audio/transcriptions"
TRANSLATIONS_PATH = "/v1/audio/translations"

MAX_PROMPT_CHARACTERS = 4096
MAX_SILENCE_MS = 10_000
MAX_PADDING_MS = 5_000
MIN_SILENCE_MS = 50
_MAX_LISTED = 16

ResponseFormat = Literal["json", "text", "srt", "vtt", "verbose_json"]
Granularity = Literal["word", "segment"]


def _empty_is_absent(value: object) -> object:
    return None if value == "" else value


def _listed(value: object) -> object:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list) and len(value) > _MAX_LISTED:
        raise PydanticCustomError("too_many", f"must hold at most {_MAX_LISTED} entries")
    return value


def _one_file(value: object) -> object:
    if isinstance(value, list):
        raise PydanticCustomError("many_files", "must be one file; there is more than one file")
    return value


def _strategy(value: object) -> object:
    """Read `auto`, which is the same as nothing said."""
    if isinstance(value, str):
        if value != "auto":
            raise PydanticCustomError("strategy", "must be `auto` or an object")
        return None
    return value


FormText = BeforeValidator(_empty_is_absent, json_schema_input_type=str | None)
Language = Annotated[
    str,
    Field(
        pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$",
        max_length=35,
        description="The language spoken, as ISO 639 has it, e.g. `en`.",
    ),
    spelled("must be a language's code, such as en"),
]
Prompt = Annotated[
    str,
    Field(
        max_length=MAX_PROMPT_CHARACTERS,
        description="Words that are likely to come, or the text before.",
    ),
]
Threshold = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False, strict=True)]
PaddingMs = Annotated[int, Field(ge=0, le=MAX_PADDING_MS, strict=True)]
SilenceMs = Annotated[int, Field(ge=MIN_SILENCE_MS, le=MAX_SILENCE_MS, strict=True)]
Listed = BeforeValidator(_listed)


class VadStrategy(BaseModel):
    """Where the server cuts a file: as it does with streams, with these settings."""

    model_config = ConfigDict(frozen=True)

    type: Literal["server_vad"]
    threshold: Annotated[Threshold | None, OfForm] = None
    prefix_padding_ms: Annotated[PaddingMs | None, OfForm] = None
    silence_duration_ms: Annotated[SilenceMs | None, OfForm] = None


class TranscriptionRequest(BaseModel):
    """A file whose words are asked for."""

    model_config = ConfigDict(frozen=True)

    file: Annotated[
        str | bytes,
        BeforeValidator(_one_file, json_schema_input_type=str | bytes),
        Field(description="The file itself in a form; base64, or a `data:` URL, in JSON."),
    ]
    model: Annotated[str, Field(min_length=1)]
    language: Annotated[Language | None, FormText] = None
    prompt: Annotated[Prompt | None, FormText] = None
    response_format: Annotated[Literal[ResponseFormat, "diarized_json"] | None, FormText] = None
    temperature: Annotated[
        Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False, strict=True)] | None, OfForm
    ] = None
    timestamp_granularities: Annotated[tuple[Granularity, ...] | None, Listed] = None
    stream: Annotated[Annotated[bool, Field(strict=True)] | None, OfForm] = None
    chunking_strategy: Annotated[
        VadStrategy | None,
        BeforeValidator(_strategy, json_schema_input_type=Literal["auto"] | VadStrategy | None),
        Field(description="How the file is cut into segments; `auto` when absent."),
    ] = None
    include: Annotated[tuple[str, ...] | None, Listed] = None
    keywords: JsonValue = None
    languages: JsonValue = None
    known_speaker_names: JsonValue = None
    known_speaker_references: JsonValue = None

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, fields: object) -> object:
        """Put fields of a form that belong to one object, `a[b]`, into that object."""
        if not isinstance(fields, Mapping):
            return fields
        head = "chunking_strategy["
        inner = {
            name[len(head) : -1]: value
            for name, value in fields.items()
            if isinstance(name, str) and name.startswith(head) and name.endswith("]")
        }
        if inner:
            return {**fields, "chunking_strategy": inner}
        strategy = fields.get("chunking_strategy")
        if isinstance(strategy, str) and strategy.startswith("{"):
            try:
                return {**fields, "chunking_strategy": json.loads(strategy)}
            except ValueError:
                return fields
        if strategy == "":
            return {**fields, "chunking_strategy": None}
        return fields


class TranslationRequest(BaseModel):
    """A file that is asked for in English; refused, see the route."""

    model_config = ConfigDict(frozen=True)

    file: str | bytes
    model: Annotated[str, Field(min_length=1)]


class DurationUsage(BaseModel):
    """What was heard, in seconds."""

    type: Literal["duration"] = "duration"
    seconds: float


class TokenUsageDetails(BaseModel):
    """Of the input tokens, how many were sound and how many text."""

    audio_tokens: int
    text_tokens: int = 0


class TokenUsage(BaseModel):
    """What was heard, where the dialect counts tokens alone: one for each begun 100 ms."""

    type: Literal["tokens"] = "tokens"
    input_tokens: int
    input_token_details: TokenUsageDetails
    output_tokens: int = 0
    total_tokens: int
    seconds: float


class TranscribedWord(BaseModel):
    """A word and when it was said, in seconds; `confidence` is from 0 to 1."""

    word: str
    start: float
    end: float
    confidence: float | None = None


class TranscribedSegment(BaseModel):
    """One utterance; times in seconds.

    `avg_logprob` is the logarithm of `confidence`, 0 where the model cannot tell. What only
    Whisper knows is neutral: no tokens, no probability of silence.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int] = Field(default_factory=list)
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float = 0.0
    confidence: float | None = None


class Transcription(BaseModel):
    """What was said in a file."""

    text: str
    usage: DurationUsage


class VerboseTranscription(BaseModel):
    """What was said in a file, and when; `language` is `und` where nobody could tell."""

    task: Literal["transcribe"] = "transcribe"
    language: str
    duration: float
    text: str
    segments: list[TranscribedSegment] | None = None
    words: list[TranscribedWord] | None = None
    usage: DurationUsage


class TranscriptDelta(BaseModel):
    """More text, which will not change."""

    type: Literal["transcript.text.delta"] = "transcript.text.delta"
    delta: str


class TranscriptDone(BaseModel):
    """The whole text: all deltas, one after the other."""

    type: Literal["transcript.text.done"] = "transcript.text.done"
    text: str
    usage: TokenUsage


class TranscriptEvent(BaseModel):
    """One event of a streamed transcription."""

    type: Literal["transcript.text.delta", "transcript.text.done"]
    delta: str | None = None
    text: str | None = None
    usage: TokenUsage | None = None
