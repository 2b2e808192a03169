"""The client's resource for transcriptions."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict, Unpack, overload

from headpond.client.async_transport import AsyncTransport
from headpond.client.stream import AsyncStream, Stream
from headpond.client.transport import Transport
from headpond.client.wire import encode
from headpond_workloads.speech.schema import (
    TRANSCRIPTIONS_PATH,
    Granularity,
    TranscriptEvent,
    Transcription,
    TranscriptionRequest,
    VerboseTranscription,
)


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


class TranscriptionParams(TypedDict):
    """Keyword arguments of `create` and `verbose`.

    Attributes:
        model: The alias of a model.
        file: The file's bytes, its base64, or a `data:` URL.
        language: The language spoken, as ISO 639 has it.
        prompt: Words that are likely to come, or the text before.
        temperature: 0 for the likeliest text.
        chunking_strategy: Where the file is cut.
        extra_body: Fields that this client does not know.
    """

    model: str
    file: bytes | str
    language: NotRequired[str]
    prompt: NotRequired[str]
    temperature: NotRequired[float]
    chunking_strategy: NotRequired[Literal["auto"] | VadParams]
    extra_body: NotRequired[Mapping[str, object]]


class Transcriptions:
    """`POST /v1/audio/transcriptions`."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    def create(
        self, *, stream: Literal[False] = False, **params: Unpack[TranscriptionParams]
    ) -> Transcription: ...
    @overload
    def create(
        self, *, stream: Literal[True], **params: Unpack[TranscriptionParams]
    ) -> Stream[TranscriptEvent]: ...
    def create(
        self, *, stream: bool = False, **params: Unpack[TranscriptionParams]
    ) -> Transcription | Stream[TranscriptEvent]:
        """Return what is said in a file: at once, or as a stream of text that never changes.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = _body(params, stream=stream)
        if stream:
            return self._transport.stream(
                TRANSCRIPTIONS_PATH, body, TranscriptEvent, is_last=_is_last
            )
        return self._transport.post(TRANSCRIPTIONS_PATH, body, Transcription)

    def verbose(
        self,
        *,
        granularities: Sequence[Granularity] = ("segment",),
        **params: Unpack[TranscriptionParams],
    ) -> VerboseTranscription:
        """Return what is said in a file, and when.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = _verbose_body(params, granularities)
        return self._transport.post(TRANSCRIPTIONS_PATH, body, VerboseTranscription)


class AsyncTranscriptions:
    """`POST /v1/audio/transcriptions`."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    async def create(
        self, *, stream: Literal[False] = False, **params: Unpack[TranscriptionParams]
    ) -> Transcription: ...
    @overload
    async def create(
        self, *, stream: Literal[True], **params: Unpack[TranscriptionParams]
    ) -> AsyncStream[TranscriptEvent]: ...
    async def create(
        self, *, stream: bool = False, **params: Unpack[TranscriptionParams]
    ) -> Transcription | AsyncStream[TranscriptEvent]:
        """Return what is said in a file: at once, or as a stream of text that never changes.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = _body(params, stream=stream)
        if stream:
            return await self._transport.stream(
                TRANSCRIPTIONS_PATH, body, TranscriptEvent, is_last=_is_last
            )
        return await self._transport.post(TRANSCRIPTIONS_PATH, body, Transcription)

    async def verbose(
        self,
        *,
        granularities: Sequence[Granularity] = ("segment",),
        **params: Unpack[TranscriptionParams],
    ) -> VerboseTranscription:
        """Return what is said in a file, and when.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = _verbose_body(params, granularities)
        return await self._transport.post(TRANSCRIPTIONS_PATH, body, VerboseTranscription)


def _body(params: TranscriptionParams, **more: object) -> bytes:
    fields = {name: value for name, value in params.items() if name != "extra_body"}
    file = params["file"]
    fields["file"] = b64encode(file).decode() if isinstance(file, bytes) else file
    return encode(fields | more | dict(params.get("extra_body", {})), TranscriptionRequest)


def _verbose_body(params: TranscriptionParams, granularities: Sequence[Granularity]) -> bytes:
    return _body(
        params,
        response_format="verbose_json",
        timestamp_granularities=list(granularities),
    )


def _is_last(event: TranscriptEvent) -> bool:
    return event.type == "transcript.text.done"
