"""Streaming models as recognisers: each sample is heard once, streams go on together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, isfinite
from typing import Generic, Literal

import numpy as np

from headpond.errors import EngineFailed, InvalidRequest
from headpond_workloads.speech.engine.recogniser import Hypothesis, Portion, Samples
from headpond_workloads.speech.engine.streaming.fbank import (
    BANDS,
    FIRST_SAMPLES,
    FRAMES_PER_S,
    RATE_HZ,
    SHIFT_SAMPLES,
    SILENT_SAMPLES,
    Fbank,
    samples_of,
)
from headpond_workloads.speech.engine.streaming.network import (
    Cache,
    Emission,
    Floats,
    Network,
    Path,
)
from headpond_workloads.speech.engine.streaming.vocabulary import Vocabulary
from headpond_workloads.speech.items import Listening, Word

_MOST_TOKENS = 4096
_TOKEN_BYTES = 64
_NONE = np.zeros(0, np.float32)
_FRAME_MS = 1000 // FRAMES_PER_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Progressed(Generic[Path]):
    """How far an utterance came; replaced as a whole once a step went well.

    Attributes:
        begun: Whether the first frame is there.
        ended: Whether the silence after the last sample is there too.
        samples: Those that make no frame yet.
        frames: Those that make no chunk yet.
        made: How many frames were made.
        rows: How many rows the encoder gave.
        cache: The encoder's.
        path: The search's.
        emissions: All tokens, with rows counted from the beginning.
    """

    begun: bool = False
    ended: bool = False
    samples: Samples
    frames: Floats
    made: int = 0
    rows: int = 0
    cache: Cache
    path: Path
    emissions: tuple[Emission, ...] = ()


@dataclass(slots=True, eq=False)
class Utterance(Generic[Path]):
    """One utterance between two steps."""

    listening: Listening
    now: Progressed[Path]
    samples: int = field(default=0)


class StreamingRecogniser(Generic[Path]):
    """Hears several utterances, a chunk of each in one forward."""

    kind: Literal["streaming"] = "streaming"
    rate_hz = RATE_HZ

    def __init__(
        self,
        network: Network[Path],
        vocabulary: Vocabulary,
        *,
        language: str,
        longest_ms: int,
        tail_ms: int,
    ) -> None:
        """Take a loaded model.

        Args:
            network: The model.
            vocabulary: Its tokens.
            language: The one it knows.
            longest_ms: The longest utterance.
            tail_ms: Silence that follows an utterance, so that its last word comes out.
        """
        self._encoder = network.encoder
        self._search = network.search
        self._vocabulary = vocabulary
        self._language = language
        self._tail_ms = tail_ms
        self._fbank = Fbank()
        self.longest_ms = longest_ms
        self.weight_bytes = network.weight_bytes
        frames_bytes = 2 * self._encoder.frames * BANDS * np.dtype(np.float32).itemsize
        self.state_bytes = self._encoder.cache_bytes + frames_bytes + _MOST_TOKENS * _TOKEN_BYTES

    def check(self, listening: Listening) -> None:
        """Refuse a language that the model does not know.

        Raises:
            InvalidRequest: Names the field.
        """
        if listening.language not in {None, self._language}:
            raise InvalidRequest(
                f"this model knows {self._language!r} only, not {listening.language!r}",
                param="language",
            )

    def fresh(self, listening: Listening, *, live: bool) -> Utterance[Path]:
        """Return the state of an utterance that begins."""
        del live  # hearing at once costs no more than hearing at the end
        now = Progressed(
            samples=np.zeros(0, np.float32),
            frames=np.zeros((0, BANDS), np.float32),
            cache=self._encoder.initial(),
            path=self._search.initial(),
        )
        return Utterance(listening, now)

    def lacks(self, state: Utterance[Path]) -> int:
        """Return how many samples an utterance lacks for its next chunk."""
        frames = self._encoder.frames - len(state.now.frames)
        if frames <= 0:
            return 0
        mirrored = 0 if state.now.begun else FIRST_SAMPLES
        return samples_of(frames) - mirrored - len(state.now.samples)

    def advance(self, portions: Sequence[Portion[Utterance[Path]]]) -> list[Hypothesis | None]:
        """Take in more sound, and go on by a chunk with all that have one."""
        grown = self._sounded(portions)
        ready = [at for at, each in enumerate(grown) if len(each.frames) >= self._encoder.frames]
        if ready:
            for at, after in zip(ready, self._encoded([grown[at] for at in ready]), strict=True):
                grown[at] = after
        found = []
        for portion, after in zip(portions, grown, strict=True):
            said_more = len(after.emissions) > len(portion.state.now.emissions)
            portion.state.now = after
            portion.state.samples += len(portion.samples)
            ends = portion.last and len(after.frames) < self._encoder.frames
            said = ends or (said_more and not portion.last)
            found.append(self._hypothesis(portion, after) if said else None)
        return found

    def _sounded(self, portions: Sequence[Portion[Utterance[Path]]]) -> list[Progressed[Path]]:
        """Make frames of the samples; after the last ones, of silence too."""
        sounds = [self._joined(portion) for portion in portions]
        begun = [
            portion.state.now.begun or len(sound) >= FIRST_SAMPLES
            for portion, sound in zip(portions, sounds, strict=True)
        ]
        found = self._fbank.frames(
            [sound if begins else _NONE for sound, begins in zip(sounds, begun, strict=True)]
        )
        return [
            self._with_frames(portion, begins, sound, frames)
            for portion, begins, sound, frames in zip(portions, begun, sounds, found, strict=True)
        ]

    def _joined(self, portion: Portion[Utterance[Path]]) -> Samples:
        """Return samples that make frames: what is left, what came, and silence at the end."""
        now = portion.state.now
        parts = [now.samples, portion.samples]
        if portion.last and not now.ended:
            parts.append(np.zeros(SILENT_SAMPLES, np.float32))
        samples = np.concatenate(parts)
        if now.begun or len(samples) < FIRST_SAMPLES:
            return samples
        return self._fbank.begin(samples)

    def _with_frames(
        self, portion: Portion[Utterance[Path]], begun: bool, samples: Samples, frames: Floats
    ) -> Progressed[Path]:
        now = portion.state.now
        if portion.last and not now.ended:
            frames = self._with_silence(frames, self._wanted(portion) - now.made)
        return Progressed(
            begun=begun,
            ended=portion.last,
            # Copies, so that the chunk and the batch they were cut from can be let go.
            samples=samples[len(frames) * SHIFT_SAMPLES :].copy(),
            frames=np.concatenate((now.frames, frames)) if len(frames) else now.frames,
            made=now.made + len(frames),
            rows=now.rows,
            cache=now.cache,
            path=now.path,
            emissions=now.emissions,
        )

    def _with_silence(self, frames: Floats, wanted: int) -> Floats:
        """Return so many frames: these, and silence."""
        if len(frames) >= wanted:
            return frames[:wanted]
        return np.concatenate((frames, self._fbank.silence(wanted - len(frames))))

    def _wanted(self, portion: Portion[Utterance[Path]]) -> int:
        """Return how many frames the utterance has, so that the last chunk is a whole one."""
        samples = portion.state.samples + len(portion.samples)
        frames = -(-(samples + self._tail_ms * RATE_HZ // 1000) // SHIFT_SAMPLES)
        chunks = max(-(-frames // self._encoder.shift), 1)
        return (chunks - 1) * self._encoder.shift + self._encoder.frames

    def _encoded(self, streams: Sequence[Progressed[Path]]) -> list[Progressed[Path]]:
        """Let each go on by a chunk, in one forward.

        Raises:
            EngineFailed: The model computed NaN.
        """
        encoder = self._encoder
        frames = np.stack([each.frames[: encoder.frames] for each in streams])
        rows, caches = encoder.encode(frames, [each.cache for each in streams])
        found, paths = self._search.search(rows, [each.path for each in streams])
        chances = [each.log_prob for emissions in found for each in emissions]
        if not (np.isfinite(rows).all() and all(map(isfinite, chances))):
            raise EngineFailed("the model's outputs hold NaN or infinity")
        return [
            Progressed(
                begun=stream.begun,
                ended=stream.ended,
                samples=stream.samples,
                frames=stream.frames[encoder.shift :],
                made=stream.made,
                rows=stream.rows + rows.shape[1],
                cache=cache,
                path=path,
                emissions=_longer(stream, emissions),
            )
            for stream, cache, path, emissions in zip(streams, caches, paths, found, strict=True)
        ]

    def _hypothesis(self, portion: Portion[Utterance[Path]], now: Progressed[Path]) -> Hypothesis:
        text = self._vocabulary.text(now.emissions)
        if not portion.last or not text:
            return Hypothesis(text=text, stable=len(text))
        words: tuple[Word, ...] = ()
        if portion.state.listening.words:
            words = self._vocabulary.words(
                now.emissions,
                self._encoder.subsampling * _FRAME_MS,
                portion.state.samples * 1000 // RATE_HZ,
            )
        chance = sum(each.log_prob for each in now.emissions) / len(now.emissions)
        return Hypothesis(
            text=text,
            stable=len(text),
            words=words,
            confidence=exp(chance),
            language=self._language,
        )


def _longer(stream: Progressed[Path], emissions: Sequence[Emission]) -> tuple[Emission, ...]:
    """Add tokens of the rows that follow."""
    if not emissions:
        return stream.emissions
    return stream.emissions + tuple(
        Emission(each.token_id, each.row + stream.rows, each.log_prob) for each in emissions
    )
