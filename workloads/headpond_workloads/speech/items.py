"""What is asked of a speech model, what a stream is fed, and what it gives.

Times are milliseconds of the stream's own clock, from its first sample; utterances count
from 0 within one call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Encoding(StrEnum):
    """How the samples of a stream are written."""

    PCM16 = "pcm16"
    FLOAT32 = "float32"
    ULAW = "pcmu"
    ALAW = "pcma"


_SAMPLE_BYTES = {Encoding.PCM16: 2, Encoding.FLOAT32: 4, Encoding.ULAW: 1, Encoding.ALAW: 1}


@dataclass(frozen=True, slots=True)
class Format:
    """How the sound of a stream is written; little-endian, channels interleaved."""

    encoding: Encoding = Encoding.PCM16
    rate_hz: int = 24000
    channels: int = 1

    @property
    def frame_bytes(self) -> int:
        """How many bytes the samples of one moment take, over all channels."""
        return _SAMPLE_BYTES[self.encoding] * self.channels


@dataclass(frozen=True, slots=True)
class Endpointing:
    """When speech begins and ends, as the server hears it.

    Attributes:
        threshold: The least probability of speech, between 0 and 1, that begins it.
        prefix_padding_ms: How much sound from before its beginning is kept.
        silence_ms: How long it is silent before an utterance has ended.
    """

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_ms: int = 500


@dataclass(frozen=True, slots=True)
class Listening:
    """What a caller wants of the recogniser.

    Attributes:
        language: The language spoken, as ISO-639-1 has it; None for the model to tell.
        prompt: Words that are likely to come, or the text before.
        endpointing: None where the caller ends utterances by `Commit`.
        words: Whether final text tells when each word was said.
        temperature: 0 for the likeliest text.
    """

    language: str | None = None
    prompt: str | None = None
    endpointing: Endpointing | None = field(default_factory=Endpointing)
    words: bool = False
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole file to transcribe.

    Attributes:
        content: The file, in any format that the media library opens.
        filename: What the caller calls it, for a hint of its format.
    """

    content: bytes
    filename: str | None
    listening: Listening


@dataclass(frozen=True, slots=True)
class Stream:
    """Sound that is fed as it is spoken."""

    format: Format
    listening: Listening


@dataclass(frozen=True, slots=True)
class Sound:
    """More sound, in the stream's format; may end anywhere, also within a sample."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """End the utterance here."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Drop the sound that is not committed yet."""


@dataclass(frozen=True, slots=True)
class Retune:
    """Listen differently from here on."""

    listening: Listening


@dataclass(frozen=True, slots=True)
class End:
    """No more sound follows."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word, when it was said, and how sure the model is of it, from 0 to 1."""

    text: str
    start_ms: int
    end_ms: int
    confidence: float | None


@dataclass(frozen=True, slots=True)
class Started:
    """Speech began."""

    utterance: int
    start_ms: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Speech ended."""

    utterance: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Partial:
    """What an utterance seems to say so far.

    Attributes:
        text: All of it, from the utterance's start.
        stable: How many of its first characters will not change any more.
        end_ms: Up to where it has been heard.
    """

    utterance: int
    text: str
    stable: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Final:
    """What an utterance says; never changes.

    Attributes:
        words: When each word was said; empty unless the caller asked for it.
        confidence: How sure the model is of all of it, from 0 to 1; None if it cannot tell.
        language: As ISO-639-1 has it; None if the model cannot tell.
    """

    utterance: int
    text: str
    start_ms: int
    end_ms: int
    words: tuple[Word, ...] = ()
    confidence: float | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The sound up to `audio_end_ms` belongs to this utterance or to earlier ones."""

    utterance: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class Heard:
    """The last output of a file: how long it was."""

    duration_ms: int


Item = Recording | Stream
Input = Sound | Commit | Clear | Retune | End
Reading = Started | Stopped | Partial | Final | Committed | Heard
