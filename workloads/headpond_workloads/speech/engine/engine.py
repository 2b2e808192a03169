"""The speech engine: a slot is a stream or a file, a step is a chunk of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from headpond.engine import Immediate, Json, Plan, Progress, Quantum
from headpond.errors import EngineFailed, HeadpondError
from headpond_workloads.speech.engine.fixtures import observation, recording_of_fixture
from headpond_workloads.speech.engine.front.decoding import Bounds, decode
from headpond_workloads.speech.engine.front.intake import Intake
from headpond_workloads.speech.engine.front.voice import Voice
from headpond_workloads.speech.engine.recogniser import (
    Hypothesis,
    Portion,
    Recogniser,
    Samples,
    State,
)
from headpond_workloads.speech.engine.slot import Slot
from headpond_workloads.speech.engine.utterances import Utterances
from headpond_workloads.speech.items import (
    Final,
    Format,
    Heard,
    Input,
    Item,
    Listening,
    Partial,
    Reading,
    Recording,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What a slot begins with.

    Attributes:
        listening: What its caller wants.
        form: How the sound that is fed is written; None of a file.
        samples: A file's sound, at the model's rate.
        audio_ms: How long it is, or may become.
    """

    listening: Listening
    form: Format | None
    samples: Samples | None
    audio_ms: int


class SpeechEngine(Generic[State]):
    """Recognises streams and files together."""

    def __init__(
        self,
        recogniser: Recogniser[State],
        voice: Voice,
        *,
        chunk_ms: int,
        most_ms: int,
        symbols: Mapping[str, int],
    ) -> None:
        """Put the parts together; `load` makes them.

        Args:
            recogniser: The model.
            voice: Tells speech from other sound.
            chunk_ms: How much a stream goes on in a step.
            most_ms: The longest file or session.
            symbols: What the model is, in the record's symbols.
        """
        self._recogniser = recogniser
        self._voice = voice
        self._chunk_ms = chunk_ms
        self._most_ms = most_ms
        self._symbols = symbols
        self._tallies = {"utterances": 0, "partial_hypotheses": 0}

    @property
    def symbols(self) -> Mapping[str, int]:
        """What the loaded model is, in the record's symbols."""
        return self._symbols

    def tallies(self) -> Mapping[str, int]:
        """Return what was counted since the start; only ever grows."""
        return dict(self._tallies)

    def plan(self, item: Item, namespace: str) -> Plan[Prepared]:
        """Decode a file, or check what a stream will be.

        Raises:
            InvalidRequest: The file is broken, or the model can't do what is asked.
            PayloadTooLarge: It is longer than may be.
        """
        del namespace
        self._recogniser.check(item.listening)
        if not isinstance(item, Recording):
            prepared = Prepared(
                listening=item.listening, form=item.format, samples=None, audio_ms=self._most_ms
            )
            return Plan(shape={"audio_ms": self._most_ms}, prepared=prepared, fed=True)
        rate_hz = self._recogniser.rate_hz
        samples = decode(item.content, rate_hz, Bounds(duration_ms=self._most_ms))
        audio_ms = len(samples) * 1000 // rate_hz
        if not audio_ms:
            nothing = Prepared(listening=item.listening, form=None, samples=samples, audio_ms=0)
            return Plan(shape={}, prepared=nothing, answer=Immediate(outputs=(Heard(0),)))
        prepared = Prepared(listening=item.listening, form=None, samples=samples, audio_ms=audio_ms)
        return Plan(shape={"audio_ms": audio_ms}, prepared=prepared)

    def start(self, plan: Plan[Prepared]) -> Slot[State]:
        """Return a slot that has heard nothing."""
        prepared = plan.prepared
        rate_hz = self._recogniser.rate_hz
        fed = prepared.samples is None
        intake = (
            Intake(prepared.form, rate_hz)
            if prepared.samples is None
            else Intake.whole(prepared.samples, rate_hz)
        )
        return Slot(
            intake,
            Utterances(self._recogniser, prepared.listening, live=fed),
            self._voice.initial(),
            rate_hz=rate_hz,
            chunk_ms=self._chunk_ms,
            most_ms=prepared.audio_ms,
            fed=fed,
        )

    def feed(self, slot: Slot[State], inputs: Sequence[Input]) -> None:
        """Take in what came for a slot.

        Raises:
            InvalidRequest: It is too much, or follows the stream's end.
        """
        for given in inputs:
            slot.feed(given)

    def step(self, quanta: Sequence[Quantum[Slot[State]]]) -> list[Progress[Reading]]:
        """Hear a chunk of each stream; recognise what is speech, of all of them together."""
        slots = [quantum.slot for quantum in quanta]
        self._hear([slot for slot in slots if not slot.due])
        turns = slots
        while turns := [slot for slot in turns if slot.due and slot.error is None]:
            turns = self._recognise(turns)
        progress = [slot.progress() for slot in slots]
        for each in progress:
            self._count(each.outputs)
        return progress

    def preempt(self, slot: Slot[State]) -> int:
        """Keep everything: a stream's sound is gone, and its state never grows."""
        del slot
        return 0

    def release(self, slot: Slot[State]) -> None:
        """Do nothing: a slot holds no more than its own memory."""

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Transcribe a fixture's recording.

        Raises:
            BundleError: The fixture holds none.
            HeadpondError: It can't be transcribed.
        """
        plan = self.plan(recording_of_fixture(given), "")
        slot = self.start(plan)
        readings: list[Reading] = []
        while True:
            (progress,) = self.step([Quantum(slot=slot, units=self._chunk_ms)])
            readings += progress.outputs
            if progress.error is not None:
                raise progress.error
            if progress.finished is not None:
                return observation(readings)

    def _hear(self, slots: Sequence[Slot[State]]) -> None:
        chunks = [slot.take() for slot in slots]
        probabilities = self._probabilities(slots, chunks)
        for slot, chunk, found in zip(slots, chunks, probabilities, strict=True):
            slot.hear(chunk, found)

    def _probabilities(
        self, slots: Sequence[Slot[State]], chunks: Sequence[Samples]
    ) -> list[Sequence[float]]:
        """Return how likely speech is in the chunks of those who ask."""
        asking = [at for at, slot in enumerate(slots) if slot.utterances.voiced]
        found: list[Sequence[float]] = [()] * len(slots)
        if asking:
            heard = self._voice.probabilities(
                [chunks[at] for at in asking], [slots[at].voice for at in asking]
            )
            for at, probabilities in zip(asking, heard, strict=True):
                found[at] = probabilities
        return found

    def _recognise(self, slots: Sequence[Slot[State]]) -> list[Slot[State]]:
        """Go on with what is due first for each; return those that are through with it.

        The others go on in the next step, together with all that is due then: who ends
        an utterance, and has several chunks to go, is not heard alone.
        """
        first = [slot.due[0] for slot in slots]
        portions = [
            Portion(state=stretch.state, samples=stretch.samples, last=stretch.part_ends)
            for stretch in first
            if stretch.state is not None
        ]
        heard = iter(self._advance(portions))
        through = []
        for slot, stretch in zip(slots, first, strict=True):
            hypothesis = None if stretch.state is None else next(heard)
            if isinstance(hypothesis, HeadpondError):
                slot.error = hypothesis
                continue
            more = stretch.state is not None and self._recogniser.lacks(stretch.state) == 0
            slot.told(hypothesis, more=more)
            if not more:
                through.append(slot)
        return through

    def _advance(
        self, portions: Sequence[Portion[State]]
    ) -> Sequence[Hypothesis | HeadpondError | None]:
        """Advance all; when that fails, each alone, so that only who is at fault fails."""
        if not portions:
            return []
        try:
            return self._recogniser.advance(portions)
        except (EngineFailed, RuntimeError, MemoryError) as error:  # torch raises the second
            if len(portions) == 1:
                failure = EngineFailed("the model could not be computed for this stream")
                failure.__cause__ = error
                return [failure]
            return [found for each in portions for found in self._advance([each])]

    def _count(self, readings: Sequence[Reading]) -> None:
        for reading in readings:
            if isinstance(reading, Final):
                self._tallies["utterances"] += 1
            elif isinstance(reading, Partial):
                self._tallies["partial_hypotheses"] += 1
