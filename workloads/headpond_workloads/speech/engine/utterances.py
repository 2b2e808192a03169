"""Where utterances of one stream begin and end, and which sound belongs to each.

Where the server ends utterances, each stretch of speech is one. Where the caller does, an
utterance is all speech between two commits; its stretches are parts that are recognised as
they end, so that a commit waits for the last one only. Silence is never recognised, except
where the caller ends utterances and the model hears each sample once anyhow: it then hears
everything, and nobody has to tell speech from silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic

import numpy as np

from headpond_workloads.speech.engine.front.endpointing import (
    Endpointer,
    SpeechStarted,
    SpeechStopped,
)
from headpond_workloads.speech.engine.recogniser import Hypothesis, Recogniser, Samples, State
from headpond_workloads.speech.items import (
    Committed,
    Endpointing,
    Final,
    Listening,
    Partial,
    Reading,
    Started,
    Stopped,
    Word,
)

_BETWEEN_COMMITS = Endpointing(threshold=0.35, silence_ms=800)
"""What is speech where the caller ends utterances: rather too much than too little."""

_KEPT_BESIDES_MS = 200
"""Sound that is kept beyond the padding: speech is only known as such after a while."""

_LONG = 0.75
"""An utterance of this share of the longest one ends at a pause, the longer the shorter."""

_PAUSE, _NEARLY_PAUSE = 0.1, 0.5
"""How likely speech may be in a pause: at first, and just before the longest utterance."""

_NONE = np.zeros(0, np.float32)


@dataclass(slots=True, eq=False)
class Utterance(Generic[State]):
    """One utterance that has not ended.

    Attributes:
        number: Its place in the call.
        start_ms: Where its speech begins.
        manual: Whether its caller ends it.
        state: The recogniser's, of the part that is spoken; None between parts.
        part_ms: Where that part begins.
        parts: What earlier parts said.
        shown: Whether anything was given out for it.
    """

    number: int
    start_ms: int
    manual: bool
    state: State | None = None
    part_ms: int = 0
    parts: list[Hypothesis] = field(default_factory=list)
    shown: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """Where an utterance ends, all its silence included, and where its speech does."""

    end_ms: int
    speech_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch(Generic[State]):
    """Sound of one utterance, to be recognised, and what it ends.

    Attributes:
        utterance: Whose it is.
        state: The recogniser's, of its part; None where none is spoken.
        part_ms: Where that part begins.
        samples: The sound.
        until_ms: Where it ends.
        part_ends: Whether the part ends with it.
        ending: Where the utterance ends, if it does.
    """

    utterance: Utterance[State]
    state: State | None
    part_ms: int
    samples: Samples
    until_ms: int
    part_ends: bool = False
    ending: Ending | None = None


class Utterances(Generic[State]):
    """Hears one stream, in order.

    Attributes:
        heard: How many samples were heard or skipped.
    """

    def __init__(self, recogniser: Recogniser[State], listening: Listening, *, live: bool) -> None:
        """Begin in silence, at the stream's first sample."""
        self._recogniser = recogniser
        self._listening = listening
        self._live = live
        self._longest_ms = recogniser.longest_ms
        self._endpointer = Endpointer(
            listening.endpointing or _BETWEEN_COMMITS, max_utterance_ms=self._longest_ms
        )
        self._open: Utterance[State] | None = None
        self._number = 0
        self.heard = 0
        self._used = 0  # samples that belong to a part, or to none
        self._kept = _NONE  # the last samples that were heard

    @property
    def voiced(self) -> bool:
        """Whether `hear` needs to know where there is speech."""
        return self._listening.endpointing is not None or self._recogniser.kind == "chunked"

    @property
    def lacks(self) -> int | None:
        """How many samples the part that is spoken lacks; None where that does not matter."""
        if self._open is None or self._open.state is None:
            return None
        return self._recogniser.lacks(self._open.state)

    @property
    def heard_ms(self) -> int:
        """How much was heard."""
        return self._ms(self.heard)

    def hear(
        self, samples: Samples, probabilities: Sequence[float], *, ends: bool
    ) -> list[Stretch[State]]:
        """Take in the next sound.

        Args:
            samples: The sound.
            probabilities: That there is speech, in each window that is complete now; none
                where it is not `voiced`.
            ends: Whether `commit` or `finish` follows at once: the rest is left to them.

        Returns:
            What is to be recognised, in order.
        """
        self.heard += len(samples)
        self._kept = np.concatenate((self._kept, samples)) if len(self._kept) else samples
        found: list[Stretch[State]] = []
        if not self.voiced:
            found += self._hear_all()
        for probability in probabilities:
            decision = self._endpointer.hear(probability)
            if decision is None and self._pauses(probability):
                decision = self._endpointer.stop()
            if isinstance(decision, SpeechStarted):
                self._begin(decision)
            elif isinstance(decision, SpeechStopped):
                found.append(self._end_of_speech(decision))
        if not ends:
            if self._open is not None and self._open.state is not None and self._used < self.heard:
                found.append(self._stretch(self._open, self.heard))
            self._forget()
        return found

    def commit(self) -> list[Stretch[State]]:
        """End the utterance here; where nothing was said, one that is empty."""
        stopped = self._endpointer.stop()
        silent = self._open is None
        utterance = self._opened(self.heard_ms)
        utterance.manual |= silent  # no speech was found to begin or to stop
        speaking = utterance.state is not None
        speech_ms = self.heard_ms
        if stopped is not None and self.voiced:
            speech_ms = stopped.speech_ms
        ending = Ending(end_ms=self.heard_ms, speech_ms=min(speech_ms, self.heard_ms))
        self._open = None
        found = [self._stretch(utterance, self.heard, part_ends=speaking, ending=ending)]
        self._forget()
        return found

    def finish(self) -> list[Stretch[State]]:
        """End what was said, since the stream ends; nothing if nothing was."""
        return [] if self._open is None else self.commit()

    def clear(self, skipped: int) -> None:
        """Forget the utterance that has not ended, and skip samples."""
        self.heard += skipped
        self._kept = _NONE
        self._endpointer.skip(self.heard_ms)
        if self._open is not None and not self._open.shown:
            self._number = self._open.number
        self._open = None

    def retune(self, listening: Listening) -> None:
        """Listen differently from here on; a part that is spoken goes on as it began."""
        if not self.voiced:  # nobody has told it of the sound so far
            self._endpointer.skip(self.heard_ms)
        self._listening = listening
        self._endpointer.retune(listening.endpointing or _BETWEEN_COMMITS)

    def told(self, stretch: Stretch[State], hypothesis: Hypothesis | None) -> list[Reading]:
        """Take in what a stretch says, and return what is to be said of it."""
        utterance = stretch.utterance
        said: list[Reading] = []
        if not utterance.manual and not utterance.shown:
            utterance.shown = True
            said.append(Started(utterance.number, stretch.part_ms))
        if stretch.part_ends and hypothesis is not None:
            utterance.parts.append(_shifted(hypothesis, stretch.part_ms))
        if stretch.ending is not None:
            return said + self._told_end(utterance, stretch.ending)
        if hypothesis is not None and self._live:
            parts = list(utterance.parts)
            if not stretch.part_ends:
                parts.append(hypothesis)
            text = _joined(parts)
            if text:
                utterance.shown = True
                stable = len(text) - len(hypothesis.text) + hypothesis.stable
                said.append(Partial(utterance.number, text, stable, stretch.until_ms))
        return said

    def _told_end(self, utterance: Utterance[State], ending: Ending) -> list[Reading]:
        parts = [part for part in utterance.parts if part.text]
        chances = [part.confidence for part in parts if part.confidence is not None]
        start_ms = min(utterance.start_ms, ending.speech_ms)
        final = Final(
            utterance.number,
            _joined(parts),
            start_ms=start_ms,
            end_ms=ending.speech_ms,
            words=tuple(
                _within(word, start_ms, ending.speech_ms) for part in parts for word in part.words
            ),
            confidence=sum(chances) / len(chances) if chances else None,
            language=parts[-1].language if parts else None,
        )
        committed = Committed(utterance.number, ending.end_ms)
        stopped = [] if utterance.manual else [Stopped(utterance.number, ending.end_ms)]
        return [*stopped, committed, final]

    def _hear_all(self) -> list[Stretch[State]]:
        """Begin a part with what follows the last one, and end it when it is long."""
        self._used = max(self._used, self.heard - len(self._kept))
        if self._used >= self.heard:
            return []
        utterance = self._opened(self._ms(self._used))
        if utterance.state is None:
            utterance.part_ms = self._ms(self._used)
            utterance.state = self._recogniser.fresh(self._listening, live=self._live)
        if self.heard_ms - utterance.part_ms < self._longest_ms:
            return []
        return [self._stretch(utterance, self.heard, part_ends=True)]

    def _begin(self, decision: SpeechStarted) -> None:
        utterance = self._opened(decision.speech_ms)
        if utterance.state is not None:  # it heard everything so far
            return
        first = max(self._samples(decision.start_ms), self.heard - len(self._kept))
        self._used = max(first, self._used)
        utterance.part_ms = self._ms(self._used)
        utterance.state = self._recogniser.fresh(self._listening, live=self._live)

    def _opened(self, start_ms: int) -> Utterance[State]:
        if self._open is None:
            manual = self._listening.endpointing is None
            self._open = Utterance(number=self._number, start_ms=start_ms, manual=manual)
            self._number += 1
        return self._open

    def _end_of_speech(self, decision: SpeechStopped) -> Stretch[State]:
        utterance = self._opened(decision.speech_ms)
        upto = min(self._samples(decision.end_ms), self.heard)
        if utterance.manual and self._listening.endpointing is None:
            return self._stretch(utterance, upto, part_ends=True)
        self._open = None
        ending = Ending(end_ms=decision.end_ms, speech_ms=decision.speech_ms)
        return self._stretch(utterance, upto, part_ends=True, ending=ending)

    def _stretch(
        self,
        utterance: Utterance[State],
        upto: int,
        *,
        part_ends: bool = False,
        ending: Ending | None = None,
    ) -> Stretch[State]:
        """Cut off the sound that was not used yet."""
        kept_from = self.heard - len(self._kept)
        samples = self._kept[max(self._used - kept_from, 0) : max(upto - kept_from, 0)]
        self._used = max(self._used, upto)
        state, utterance.state = utterance.state, None if part_ends else utterance.state
        return Stretch(
            utterance=utterance,
            state=state,
            part_ms=utterance.part_ms,
            samples=samples,
            until_ms=self._ms(upto),
            part_ends=part_ends,
            ending=ending,
        )

    def _pauses(self, probability: float) -> bool:
        """Say whether an utterance that is nearly too long should end in this window."""
        if not self._endpointer.speaking or self._open is None:
            return False
        length = (self._endpointer.now_ms - self._open.part_ms) / self._longest_ms
        late = (length - _LONG) / (1.0 - _LONG)
        return late >= 0.0 and probability < _PAUSE + late * (_NEARLY_PAUSE - _PAUSE)

    def _forget(self) -> None:
        """Keep what an utterance may still begin with; never what another one used."""
        padding = self._listening.endpointing or _BETWEEN_COMMITS
        kept_ms = padding.prefix_padding_ms + _KEPT_BESIDES_MS
        wanted = min(self._samples(kept_ms), max(self.heard - self._used, 0))
        self._kept = self._kept[len(self._kept) - wanted :] if wanted else _NONE

    def _ms(self, samples: int) -> int:
        return samples * 1000 // self._recogniser.rate_hz

    def _samples(self, ms: int) -> int:
        return ms * self._recogniser.rate_hz // 1000


def _joined(parts: Sequence[Hypothesis]) -> str:
    return " ".join(part.text for part in parts if part.text)


def _within(word: Word, start_ms: int, end_ms: int) -> Word:
    """Keep a word to where there is speech: models begin the first one with the padding."""
    begins, ends = (min(max(ms, start_ms), end_ms) for ms in (word.start_ms, word.end_ms))
    return Word(word.text, begins, ends, word.confidence)


def _shifted(part: Hypothesis, by_ms: int) -> Hypothesis:
    """Count a part's times from the stream's first sample."""
    return Hypothesis(
        text=part.text,
        stable=part.stable,
        words=tuple(
            Word(word.text, word.start_ms + by_ms, word.end_ms + by_ms, word.confidence)
            for word in part.words
        ),
        confidence=part.confidence,
        language=part.language,
    )
