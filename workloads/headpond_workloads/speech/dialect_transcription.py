"""OpenAI's transcription dialect: `POST /v1/audio/transcriptions` in and out of our terms."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import ceil, log

from headpond.call import Output
from headpond.dialect import Ask, Heading, ItemEvent, Raw, SseEvent, StreamWriter
from headpond.encoded import file_bytes
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.speech.dialect_subtitles import srt, vtt
from headpond_workloads.speech.dialect_transcript import SPACE, Settled, Transcript, fold
from headpond_workloads.speech.items import (
    Endpointing,
    Final,
    Heard,
    Listening,
    Partial,
    Recording,
)
from headpond_workloads.speech.schema import (
    TRANSCRIPTIONS_PATH,
    DurationUsage,
    TokenUsage,
    TokenUsageDetails,
    TranscribedSegment,
    TranscribedWord,
    TranscriptDelta,
    TranscriptDone,
    Transcription,
    TranscriptionRequest,
    TranslationRequest,
    VadStrategy,
    VerboseTranscription,
)

PLAIN = "text/plain; charset=utf-8"
VTT = "text/vtt; charset=utf-8"

_MS_PER_S = 1000
_MS_PER_TOKEN = 100
_MS_PER_SEEK = 10  # a frame of Whisper's features
_UNSUPPORTED = ("keywords", "languages", "known_speaker_names", "known_speaker_references")
_UNKNOWN_LANGUAGE = "und"


class TranscriptionExchange:
    """One file, and its text in the format that was asked for."""

    def __init__(self, request: TranscriptionRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._format = request.response_format or "json"

    def ask(self) -> Ask:
        """Return the file as the one item of a call.

        Raises:
            InvalidRequest: Fields that contradict each other, or no file.
            UnsupportedParameter: Something the dialect knows and no model here does.
        """
        request = self._request
        self._refuse_unsupported()
        granularities = request.timestamp_granularities
        if granularities and self._format != "verbose_json":
            raise InvalidRequest(
                "timestamp granularities need response_format verbose_json",
                param="timestamp_granularities",
            )
        if request.stream and self._format not in ("json", "text"):
            raise InvalidRequest(
                f"{self._format} cannot be streamed; json and text can", param="response_format"
            )
        listening = Listening(
            language=request.language,
            prompt=request.prompt,
            endpointing=_endpointing(request.chunking_strategy),
            words=self._wants("word") or self._format in ("srt", "vtt"),
            temperature=request.temperature or 0.0,
        )
        content = file_bytes(request.file, "file", "file")
        recording = Recording(content=content, filename=None, listening=listening)
        return Ask(model=request.model, items=(recording,), stream=bool(request.stream))

    def body(
        self, heading: Heading, events: Sequence[ItemEvent], work: Work
    ) -> Transcription | VerboseTranscription | Raw:
        """Return the text in its format.

        Raises:
            HeadpondError: The file failed.
        """
        transcript = fold(events, work)
        if self._format == "text":
            return Raw(content=transcript.text.encode(), media_type=PLAIN)
        if self._format == "srt":
            return Raw(content=srt(transcript.finals).encode(), media_type=PLAIN)
        if self._format == "vtt":
            return Raw(content=vtt(transcript.finals).encode(), media_type=VTT)
        usage = DurationUsage(seconds=transcript.duration_ms / _MS_PER_S)
        if self._format == "json":
            return Transcription(text=transcript.text, usage=usage)
        return self._verbose(transcript, usage)

    def stream(self, heading: Heading) -> StreamWriter:
        """Return the writer of a stream."""
        return TranscriptWriter()

    def _refuse_unsupported(self) -> None:
        for name in _UNSUPPORTED:
            if getattr(self._request, name):
                raise UnsupportedParameter(f"{name} is not supported", param=name)
        if self._format == "diarized_json":
            raise UnsupportedParameter(
                "speakers are not told apart; diarized_json is not supported",
                param="response_format",
            )
        if self._request.include:
            raise UnsupportedParameter(
                "log probabilities of tokens are not given; verbose_json has the confidence of "
                "segments and words",
                param="include",
            )

    def _wants(self, granularity: str) -> bool:
        if self._format != "verbose_json":
            return False
        return granularity in (self._request.timestamp_granularities or ("segment",))

    def _verbose(self, transcript: Transcript, usage: DurationUsage) -> VerboseTranscription:
        finals = transcript.finals
        segments = [self._segment(at, final) for at, final in enumerate(finals)]
        words = [
            TranscribedWord(
                word=word.text,
                start=word.start_ms / _MS_PER_S,
                end=word.end_ms / _MS_PER_S,
                confidence=word.confidence,
            )
            for final in finals
            for word in final.words
        ]
        return VerboseTranscription(
            language=self._request.language or transcript.language or _UNKNOWN_LANGUAGE,
            duration=usage.seconds,
            text=transcript.text,
            segments=segments if self._wants("segment") else None,
            words=words if self._wants("word") else None,
            usage=usage,
        )

    def _segment(self, at: int, final: Final) -> TranscribedSegment:
        encoded = final.text.encode()
        return TranscribedSegment(
            id=at,
            seek=final.start_ms // _MS_PER_SEEK,
            start=final.start_ms / _MS_PER_S,
            end=final.end_ms / _MS_PER_S,
            text=final.text,
            temperature=self._request.temperature or 0.0,
            avg_logprob=log(final.confidence) if final.confidence else 0.0,
            compression_ratio=len(encoded) / len(zlib.compress(encoded)),
            confidence=final.confidence,
        )


class TranscriptWriter:
    """The events of one streamed file.

    Deltas hold only what will not change, so that `done.text` is all of them together.
    """

    def __init__(self) -> None:
        """Begin with nothing said."""
        self._text = ""
        self._utterance: int | None = None
        self._settled = Settled()
        self._begun = False  # whether this utterance has said something
        self._duration_ms: int | None = None

    def write(self, events: Sequence[ItemEvent]) -> list[SseEvent]:
        """Render what a step made certain."""
        before = len(self._text)
        for event in events:
            if isinstance(event, Output):
                self._take(event.payload)
        delta = self._text[before:]
        return [_event(TranscriptDelta(delta=delta))] if delta else []

    def close(self, work: Work) -> list[SseEvent]:
        """Render the whole text, and what it was charged as."""
        duration_ms = work["audio_ms"] if self._duration_ms is None else self._duration_ms
        tokens = ceil(duration_ms / _MS_PER_TOKEN)
        usage = TokenUsage(
            input_tokens=tokens,
            input_token_details=TokenUsageDetails(audio_tokens=tokens),
            total_tokens=tokens,
            seconds=duration_ms / _MS_PER_S,
        )
        return [_event(TranscriptDone(text=self._text, usage=usage))]

    def _take(self, payload: object) -> None:
        if isinstance(payload, Partial):
            self._add(payload.utterance, payload.text, payload.stable)
        elif isinstance(payload, Final):
            self._add(payload.utterance, payload.text, len(payload.text))
        elif isinstance(payload, Heard):
            self._duration_ms = payload.duration_ms

    def _add(self, utterance: int, text: str, stable: int) -> None:
        if utterance != self._utterance:
            self._utterance, self._settled = utterance, Settled()
            self._begun = False
        more = self._settled.take(text, stable)
        if more and not self._begun:
            self._begun = True
            more = (SPACE if self._text else "") + more
        self._text += more


class TranslationExchange:
    """A file that is asked for in English. No model here does that."""

    def __init__(self, request: TranslationRequest) -> None:
        """Read a request of the right types."""
        self._request = request

    def ask(self) -> Ask:
        """Refuse.

        Raises:
            InvalidRequest: Always; says where to go instead.
        """
        raise InvalidRequest(
            "speech is not translated here; POST it to "
            f"{TRANSCRIPTIONS_PATH} for its text in the language that is spoken",
            param="model",
        )

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Transcription:
        """Refuse, as `ask` does."""
        raise InvalidRequest("speech is not translated here", param="model")

    def stream(self, heading: Heading) -> StreamWriter:
        """Refuse, as `ask` does."""
        raise InvalidRequest("speech is not translated here", param="model")


def _endpointing(strategy: VadStrategy | None) -> Endpointing:
    if strategy is None:
        return Endpointing()
    plain = Endpointing()
    return Endpointing(
        threshold=plain.threshold if strategy.threshold is None else strategy.threshold,
        prefix_padding_ms=(
            plain.prefix_padding_ms
            if strategy.prefix_padding_ms is None
            else strategy.prefix_padding_ms
        ),
        silence_ms=(
            plain.silence_ms
            if strategy.silence_duration_ms is None
            else strategy.silence_duration_ms
        ),
    )


def _event(event: TranscriptDelta | TranscriptDone) -> SseEvent:
    return SseEvent(data=event.model_dump_json())
