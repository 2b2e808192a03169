"""Where speech begins and ends: a state machine over probabilities, and nothing else.

Speech begins when its probability reaches the threshold and stays above a lower one
(hysteresis) until it has been heard for `MIN_SPEECH_MS`; a click is no speech. It ends when
the probability has been below the lower threshold for the silence that was asked for, or
when the utterance is as long as one may be; talk that goes on then begins the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

from headpond_workloads.speech.items import Endpointing

WINDOW_MS = 32
"""How much sound each probability is of."""

MIN_SPEECH_MS = 64
MAX_UTTERANCE_MS = 30_000
HYSTERESIS = 0.15
"""How far below the threshold the probability must fall for silence to begin."""

_LEAST_THRESHOLD = 0.01


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Speech began.

    Attributes:
        start_ms: Where the utterance begins, padding included; never before the end of the
            one before.
        speech_ms: Where its speech begins.
    """

    start_ms: int
    speech_ms: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """Speech ended.

    Attributes:
        end_ms: Where the utterance ends, the silence that told so included.
        speech_ms: Where its speech ends.
    """

    end_ms: int
    speech_ms: int


class Endpointer:
    """Hears one probability for each window of a stream, in order.

    Attributes:
        now_ms: The end of what was heard.
        speaking: Whether an utterance has begun and not ended.
    """

    def __init__(
        self,
        settings: Endpointing,
        *,
        min_speech_ms: int = MIN_SPEECH_MS,
        max_utterance_ms: int = MAX_UTTERANCE_MS,
    ) -> None:
        """Begin in silence, at the stream's first sample."""
        self._settings = settings
        self._min_speech_ms = min_speech_ms
        self._max_utterance_ms = max_utterance_ms
        self._begun_ms: int | None = None  # where the speech of now, or its attempt, begins
        self._silent_ms: int | None = None  # where the silence within speech begins
        self._start_ms = 0  # where the utterance of now begins
        self._free_ms = 0  # before this, all sound belongs to earlier utterances
        self.now_ms = 0
        self.speaking = False

    def retune(self, settings: Endpointing) -> None:
        """Listen with other settings from here on."""
        self._settings = settings

    def hear(self, probability: float) -> SpeechStarted | SpeechStopped | None:
        """Take in the next window, and return what it decides."""
        begins_ms = self.now_ms
        self.now_ms += WINDOW_MS
        if self.speaking:
            return self._listen(probability, begins_ms)
        return self._wait(probability, begins_ms)

    def stop(self) -> SpeechStopped | None:
        """End the utterance of now here, if there is one."""
        stopped = self._stop() if self.speaking else None
        self._begun_ms = None
        self._free_ms = self.now_ms
        return stopped

    def skip(self, to_ms: int) -> None:
        """Go on at `to_ms`, in silence: what was not decided is forgotten."""
        self.now_ms = self._free_ms = max(to_ms, self.now_ms)
        self._begun_ms = self._silent_ms = None
        self.speaking = False

    def _wait(self, probability: float, begins_ms: int) -> SpeechStarted | None:
        threshold = self._settings.threshold if self._begun_ms is None else self._low
        if probability < threshold:
            self._begun_ms = None
            return None
        if self._begun_ms is None:
            self._begun_ms = begins_ms
        if self.now_ms - self._begun_ms < self._min_speech_ms:
            return None
        self.speaking = True
        self._silent_ms = None
        padded_ms = self._begun_ms - self._settings.prefix_padding_ms
        self._start_ms = max(padded_ms, self._free_ms)
        return SpeechStarted(start_ms=self._start_ms, speech_ms=self._begun_ms)

    def _listen(self, probability: float, begins_ms: int) -> SpeechStopped | None:
        if probability >= self._settings.threshold:
            self._silent_ms = None
        elif probability < self._low and self._silent_ms is None:
            self._silent_ms = begins_ms
        silent_since_ms = self.now_ms if self._silent_ms is None else self._silent_ms
        is_silent = self.now_ms - silent_since_ms >= max(self._settings.silence_ms, 1)
        if is_silent or self.now_ms - self._start_ms >= self._max_utterance_ms:
            return self._stop()
        return None

    def _stop(self) -> SpeechStopped:
        speech_ms = self.now_ms if self._silent_ms is None else self._silent_ms
        self.speaking = False
        self._begun_ms = self._silent_ms = None
        self._free_ms = self.now_ms
        return SpeechStopped(end_ms=self.now_ms, speech_ms=speech_ms)

    @property
    def _low(self) -> float:
        low = max(self._settings.threshold - HYSTERESIS, _LEAST_THRESHOLD)
        return min(low, self._settings.threshold)
