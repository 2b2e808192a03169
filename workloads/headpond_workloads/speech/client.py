"""The client's resource for transcriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, Unpack, overload

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from headpond.client.async_transport import AsyncTransport
from headpond.client.media import sound_source
from headpond.client.options import CallOptions
from headpond.client.stream import AsyncStream, Stream
from headpond.client.transport import Transport
from headpond.client.upload import OnProgress, Upload, opened
from headpond.client.wire import encode, options_of
from headpond_workloads.speech.schema import (
    TRANSCRIPTIONS_PATH,
    Granularity,
    ResponseFormat,
    TranscriptEvent,
    Transcription,
    TranscriptionRequest,
    VerboseTranscription,
)

if TYPE_CHECKING:
    from headpond.client.media import Sound

TextFormat = Literal["text", "srt", "vtt"]
Answer = Transcription | VerboseTranscription | str


class VadParams(TypedDict):
    """Where a file is cut.

    Attributes:
        type: As OpenAI calls it.
        threshold: The least probability of speech that begins it, from 0 to 1.
        prefix_padding_ms: How much sound from before is kept.
        silence_duration_ms: How long it is silent before an utterance has ended.
    """

    type: Literal["server_vad"]
    threshold: NotRequired[float]
    prefix_padding_ms: NotRequired[int]
    silence_duration_ms: NotRequired[int]


class TranscriptionParams(CallOptions):
    """Keyword arguments of `create`; None is the same as absent.

    Attributes:
        model: The alias of a model.
        file: A path, a file's bytes, an open file, or samples and their rate in Hz: float from
            -1 to 1, or int16, of shape (frames,) or (frames, channels).
        filename: What the server calls it; the file's own name by default.
        language: The language spoken, as ISO 639 has it.
        prompt: Words that are likely to come, or the text before.
        temperature: 0 for the likeliest text.
        chunking_strategy: Where the file is cut.
        on_progress: Told how many bytes of the file were sent, and of how many.
    """

    model: str
    file: Sound
    filename: NotRequired[str | None]
    language: NotRequired[str | None]
    prompt: NotRequired[str | None]
    temperature: NotRequired[float | None]
    chunking_strategy: NotRequired[Literal["auto"] | VadParams | None]
    on_progress: NotRequired[OnProgress | None]


class Transcriptions:
    """`POST /v1/audio/transcriptions`; the file is read while it is sent."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    def create(
        self,
        *,
        stream: Literal[False] = False,
        response_format: Literal["json"] = "json",
        **params: Unpack[TranscriptionParams],
    ) -> Transcription: ...
    @overload
    def create(
        self, *, stream: Literal[True], **params: Unpack[TranscriptionParams]
    ) -> Stream[TranscriptEvent]: ...
    @overload
    def create(
        self,
        *,
        response_format: Literal["verbose_json"],
        timestamp_granularities: Sequence[Granularity] = ("segment",),
        **params: Unpack[TranscriptionParams],
    ) -> VerboseTranscription: ...
    @overload
    def create(
        self, *, response_format: TextFormat, **params: Unpack[TranscriptionParams]
    ) -> str: ...
    def create(
        self,
        *,
        stream: bool = False,
        response_format: ResponseFormat = "json",
        timestamp_granularities: Sequence[Granularity] = (),
        **params: Unpack[TranscriptionParams],
    ) -> Answer | Stream[TranscriptEvent]:
        """Return what is said in a file: at once, or as a stream of text that never changes.

        Args:
            stream: Whether to return a stream, which is of plain text.
            response_format: `verbose_json` says when, too; `text`, `srt` and `vtt` are texts.
            timestamp_granularities: Of `verbose_json`: times of segments, words, or both.
            params: See `TranscriptionParams`.

        Raises:
            OSError: The file can't be read.
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        more: dict[str, object] = {"stream": True} if stream else {}
        if response_format != "json":
            more["response_format"] = response_format
        if timestamp_granularities:
            more["timestamp_granularities"] = list(timestamp_granularities)
        options = options_of(params)
        with _form(params, more) as form:
            if stream:
                return self._transport.stream(
                    TRANSCRIPTIONS_PATH, form, TranscriptEvent, is_last=_is_last, options=options
                )
            if response_format in ("text", "srt", "vtt"):
                return self._transport.text(TRANSCRIPTIONS_PATH, form, options=options)
            if response_format == "json":
                return self._transport.post(
                    TRANSCRIPTIONS_PATH, form, Transcription, options=options
                )
            return self._transport.post(
                TRANSCRIPTIONS_PATH, form, VerboseTranscription, options=options
            )


class AsyncTranscriptions:
    """`POST /v1/audio/transcriptions`; the file is read while it is sent."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    async def create(
        self,
        *,
        stream: Literal[False] = False,
        response_format: Literal["json"] = "json",
        **params: Unpack[TranscriptionParams],
    ) -> Transcription: ...
    @overload
    async def create(
        self, *, stream: Literal[True], **params: Unpack[TranscriptionParams]
    ) -> AsyncStream[TranscriptEvent]: ...
    @overload
    async def create(
        self,
        *,
        response_format: Literal["verbose_json"],
        timestamp_granularities: Sequence[Granularity] = ("segment",),
        **params: Unpack[TranscriptionParams],
    ) -> VerboseTranscription: ...
    @overload
    async def create(
        self, *, response_format: TextFormat, **params: Unpack[TranscriptionParams]
    ) -> str: ...
    async def create(
        self,
        *,
        stream: bool = False,
        response_format: ResponseFormat = "json",
        timestamp_granularities: Sequence[Granularity] = (),
        **params: Unpack[TranscriptionParams],
    ) -> Answer | AsyncStream[TranscriptEvent]:
        """Return what is said in a file: at once, or as a stream of text that never changes.

        Args:
            stream: Whether to return a stream, which is of plain text.
            response_format: `verbose_json` says when, too; `text`, `srt` and `vtt` are texts.
            timestamp_granularities: Of `verbose_json`: times of segments, words, or both.
            params: See `TranscriptionParams`.

        Raises:
            OSError: The file can't be read.
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        more: dict[str, object] = {"stream": True} if stream else {}
        if response_format != "json":
            more["response_format"] = response_format
        if timestamp_granularities:
            more["timestamp_granularities"] = list(timestamp_granularities)
        options = options_of(params)
        with _form(params, more) as form:
            if stream:
                return await self._transport.stream(
                    TRANSCRIPTIONS_PATH, form, TranscriptEvent, is_last=_is_last, options=options
                )
            if response_format in ("text", "srt", "vtt"):
                return await self._transport.text(TRANSCRIPTIONS_PATH, form, options=options)
            if response_format == "json":
                return await self._transport.post(
                    TRANSCRIPTIONS_PATH, form, Transcription, options=options
                )
            return await self._transport.post(
                TRANSCRIPTIONS_PATH, form, VerboseTranscription, options=options
            )


@contextmanager
def _form(params: TranscriptionParams, more: dict[str, object]) -> Iterator[Upload]:
    """Open the file and check the fields that go along, as the server will check them."""
    apart = ("file", "filename", "on_progress")
    fields = {name: value for name, value in params.items() if name not in apart}
    body = encode({**fields, **more, "file": ""}, TranscriptionRequest)
    source = sound_source(params["file"])
    name = params.get("filename") or ("sound.wav" if isinstance(params["file"], tuple) else None)
    with opened(source, name) as (file, filename):
        yield Upload(
            file=file,
            filename=filename,
            fields=_texts(from_json(body)),
            on_progress=params.get("on_progress"),
        )


def _texts(fields: dict[str, JsonValue]) -> dict[str, str | list[str]]:
    """Return the fields of a JSON body, but for the file, as a form has them."""
    return {
        name: [_text(each) for each in value] if isinstance(value, list) else _text(value)
        for name, value in fields.items()
        if name != "file" and value is not None
    }


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else to_json(value).decode()


def _is_last(event: TranscriptEvent) -> bool:
    return event.type == "transcript.text.done"
