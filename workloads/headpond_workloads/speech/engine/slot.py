"""One stream, or one file, in the engine: its sound, its clock, and what comes where."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np

from headpond.engine import Progress
from headpond.errors import HeadpondError, InvalidRequest, PayloadTooLarge
from headpond.units import Work
from headpond_workloads.speech.engine.front.intake import Intake
from headpond_workloads.speech.engine.front.voice import VoiceState
from headpond_workloads.speech.engine.recogniser import Hypothesis, Samples, State
from headpond_workloads.speech.engine.utterances import Stretch, Utterances
from headpond_workloads.speech.items import (
    Clear,
    Commit,
    End,
    Heard,
    Input,
    Reading,
    Retune,
    Sound,
)

_NONE = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happens at a place in the sound, counted in samples."""

    at: int
    what: Commit | Clear | Retune


class Slot(Generic[State]):
    """What the engine keeps of one item.

    Attributes:
        voice: What the voice activity network keeps.
        utterances: Where utterances begin and end.
        due: What is to be recognised, in order, before it hears more.
        error: Why it can't go on.
    """

    def __init__(
        self,
        intake: Intake,
        utterances: Utterances[State],
        voice: VoiceState,
        *,
        rate_hz: int,
        chunk_ms: int,
        most_ms: int,
        fed: bool,
    ) -> None:
        """Begin at the first sample.

        Args:
            intake: Its sound; of a file, all of it.
            utterances: Hears it.
            voice: As it is at the beginning.
            rate_hz: The model's.
            chunk_ms: How much it goes on in a step, at most.
            most_ms: How long it may be.
            fed: Whether its sound comes while it runs.
        """
        self.voice = voice
        self.utterances = utterances
        self.due: deque[Stretch[State]] = deque()
        self.error: HeadpondError | None = None
        self._intake = intake
        self._rate_hz = rate_hz
        self._chunk_ms = chunk_ms
        self._chunk = chunk_ms * rate_hz // 1000
        self._most = most_ms * rate_hz // 1000
        self._fed = fed
        self._marks: deque[Mark] = deque()
        self._taken = 0
        self._told_ms = 0
        self._said: list[Reading] = []

    def feed(self, given: Input) -> None:
        """Take in what came.

        Raises:
            InvalidRequest: It can't follow what came before.
            PayloadTooLarge: The stream gets longer than it may be.
        """
        if self._intake.ended:
            if isinstance(given, End):
                return
            raise InvalidRequest("the stream has ended; nothing can follow")
        if isinstance(given, Sound):
            self._intake.add(given.content)
            if self._taken + self._intake.waiting >= self._most:
                raise PayloadTooLarge(
                    f"a session is at most {self._most // self._rate_hz} s long; open another one"
                )
        elif isinstance(given, End):
            self._intake.end()
        else:
            if isinstance(given, Commit):
                self._intake.cut()
            elif isinstance(given, Clear):
                self._intake.clear()
            self._marks.append(Mark(self._taken + self._intake.waiting, given))

    def take(self) -> Samples:
        """Return the next sound: a chunk at most, and what is lacking to go on at least.

        Less where something happens amid it, or the sound ends.
        """
        while self._marks and isinstance(self._marks[0].what, Clear):
            self._skip(self._marks.popleft().at - self._taken)
        most = self._chunk
        if self._marks:
            most = min(most, self._marks[0].at - self._taken)
        samples = self._intake.take(most, min(self._least, most)) if most else None
        if samples is None:
            return _NONE
        self._taken += len(samples)
        return samples

    def hear(self, samples: Samples, probabilities: Sequence[float]) -> None:
        """Take in a chunk, and find what is due then."""
        committed = any(
            mark.at == self._taken and isinstance(mark.what, Commit) for mark in self._marks
        )
        ends = committed or self._intake.drained
        found = self.utterances.hear(samples, probabilities, ends=ends)
        while self._marks and self._marks[0].at == self._taken:
            what = self._marks.popleft().what
            if isinstance(what, Commit):
                found += self.utterances.commit()
            elif isinstance(what, Retune):
                self.utterances.retune(what.listening)
            else:
                self._skip(0)
        if self._intake.drained:
            found += self.utterances.finish()
        self.due += found

    def told(self, hypothesis: Hypothesis | None, *, more: bool) -> None:
        """Take in what the first stretch that is due says.

        Args:
            hypothesis: What it says, if that is new.
            more: Whether it is not through yet.
        """
        stretch = self.due.popleft()
        if more:
            self.due.appendleft(replace(stretch, samples=_NONE))
        if not (more and stretch.part_ends):
            self._said += self.utterances.told(stretch, hypothesis)

    def progress(self) -> Progress[Reading]:
        """Return what came of a step."""
        if self.error is not None:
            return Progress(units=0, error=self.error)
        # What was skipped counts too, but no step goes further than a chunk.
        reached_ms = self._taken * 1000 // self._rate_hz
        units = min(reached_ms - self._told_ms, self._chunk_ms)
        self._told_ms += units
        finished = None
        through = self._intake.drained and not self._marks and not self.due
        if through and self._told_ms == reached_ms:
            finished = Work(audio_ms=reached_ms)
            if not self._fed:
                self._said.append(Heard(reached_ms))
        said, self._said = tuple(self._said), []
        idle = self._fed and finished is None and not self._ready(reached_ms)
        return Progress(outputs=said, units=units, finished=finished, idle=idle)

    def _ready(self, reached_ms: int) -> bool:
        """Say whether another step could go on."""
        if self._intake.ended or reached_ms > self._told_ms or self._marks or self.due:
            return True
        return self._intake.waiting >= self._least

    @property
    def _least(self) -> int:
        """How many samples are worth a step: nothing new is said of fewer."""
        lacks = self.utterances.lacks
        return self._chunk if lacks is None else min(lacks, self._chunk)

    def _skip(self, samples: int) -> None:
        """Drop what is not committed."""
        while samples > 0:
            dropped = self._intake.take(samples)
            if dropped is None:
                break
            samples -= len(dropped)
            self._taken += len(dropped)
        self.utterances.clear(self._taken - self.utterances.heard)
