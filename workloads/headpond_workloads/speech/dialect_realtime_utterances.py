"""What a recogniser gives, as OpenAI's events: each utterance is one item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headpond.errors import HeadpondError
from headpond_workloads.speech.dialect_realtime_ledger import Ledger
from headpond_workloads.speech.dialect_transcript import Settled
from headpond_workloads.speech.items import Committed, Final, Partial, Started, Stopped, Word
from headpond_workloads.speech.schema import DurationUsage, TranscribedWord
from headpond_workloads.speech.schema_realtime_events import (
    AudioItem,
    BufferAcknowledged,
    BufferCommitted,
    FailureDetail,
    ItemEvent,
    ServerEvent,
    SpeechStartedEvent,
    SpeechStoppedEvent,
    TranscriptionCompleted,
    TranscriptionDelta,
    TranscriptionFailed,
)

_MS_PER_S = 1000


@dataclass(slots=True)
class _Utterance:
    """One that has no final text yet."""

    item_id: str
    settled: Settled = field(default_factory=Settled)
    revisable: str = ""
    end_ms: int | None = None
    usage_ms: int = 0


class Utterances:
    """The items of one session."""

    def __init__(self, session_id: str, ledger: Ledger) -> None:
        """Name items after a session, and tell its ledger what is final."""
        self._session_id = session_id
        self._ledger = ledger
        self._count = 0
        self._last_id: str | None = None
        self._open: dict[int, _Utterance] = {}
        self._charged_ms = 0
        self._dropped = -1

    def render(self, payload: object) -> Iterator[ServerEvent]:
        """Iterate over the events of one output."""
        if isinstance(payload, Stopped | Partial) and self._is_dropped(payload.utterance):
            return
        if isinstance(payload, Started):
            yield SpeechStartedEvent(
                audio_start_ms=self._ledger.base_ms + payload.start_ms,
                item_id=self._of(payload.utterance).item_id,
            )
        elif isinstance(payload, Stopped):
            yield SpeechStoppedEvent(
                audio_end_ms=self._ledger.base_ms + payload.end_ms,
                item_id=self._of(payload.utterance).item_id,
            )
        elif isinstance(payload, Partial):
            yield from self._partial(payload)
        elif isinstance(payload, Committed):
            yield from self._committed(payload)
        elif isinstance(payload, Final):
            yield from self._final(payload)

    def fail(self, error: HeadpondError) -> Iterator[ServerEvent]:
        """Give up every item that has no final text, and iterate over the events that say so."""
        detail = FailureDetail(
            type=error.kind, code=error.code, message=error.message, param=error.param
        )
        for utterance in self._open.values():
            yield TranscriptionFailed(item_id=utterance.item_id, error=detail)
        self.restart()

    def restart(self) -> None:
        """Begin with another call, whose utterances count from 0 again."""
        self._open.clear()
        self._dropped = -1

    def drop(self) -> None:
        """Forget the items that were not committed; what is still said of them is passed over."""
        for number in [at for at, each in self._open.items() if each.end_ms is None]:
            del self._open[number]
            self._dropped = max(self._dropped, number)

    def _is_dropped(self, number: int) -> bool:
        return number <= self._dropped and number not in self._open

    def _partial(self, partial: Partial) -> Iterator[ServerEvent]:
        utterance = self._of(partial.utterance)
        delta = utterance.settled.take(partial.text, partial.stable)
        revisable = partial.text[partial.stable :]
        if not delta and revisable == utterance.revisable:
            return
        utterance.revisable = revisable
        yield TranscriptionDelta(
            item_id=utterance.item_id,
            delta=delta,
            revisable=revisable,
            audio_end_ms=self._ledger.base_ms + partial.end_ms,
        )

    def _committed(self, committed: Committed) -> Iterator[ServerEvent]:
        utterance = self._of(committed.utterance)
        previous, self._last_id = self._last_id, utterance.item_id
        self._commit(utterance, self._ledger.base_ms + committed.audio_end_ms)
        item = AudioItem(id=utterance.item_id)
        yield BufferCommitted(item_id=item.id, previous_item_id=previous)
        yield ItemEvent(type="conversation.item.added", previous_item_id=previous, item=item)
        yield ItemEvent(type="conversation.item.done", previous_item_id=previous, item=item)

    def _commit(self, utterance: _Utterance, end_ms: int) -> None:
        """Let an utterance have all sound up to a point that belongs to none before it."""
        utterance.end_ms = end_ms
        utterance.usage_ms = max(0, end_ms - self._charged_ms)
        self._charged_ms = max(self._charged_ms, end_ms)
        self._ledger.committed_ms = max(self._ledger.committed_ms, end_ms)

    def _final(self, final: Final) -> Iterator[ServerEvent]:
        utterance = self._of(final.utterance)
        base_ms = self._ledger.base_ms
        if utterance.end_ms is None:
            self._commit(utterance, base_ms + final.end_ms)
        rest = utterance.settled.take(final.text, len(final.text))
        if rest or utterance.revisable:
            yield TranscriptionDelta(
                item_id=utterance.item_id,
                delta=rest,
                revisable="",
                audio_end_ms=base_ms + final.end_ms,
            )
        yield TranscriptionCompleted(
            item_id=utterance.item_id,
            transcript=final.text,
            usage=DurationUsage(seconds=utterance.usage_ms / _MS_PER_S),
            audio_start_ms=base_ms + final.start_ms,
            audio_end_ms=base_ms + final.end_ms,
            words=[_word(word, base_ms) for word in final.words],
            confidence=final.confidence,
            language=final.language,
        )
        del self._open[final.utterance]
        if utterance.end_ms is not None:
            self._ledger.acknowledge(utterance.end_ms)
        yield BufferAcknowledged(
            sequence=self._ledger.acknowledged, audio_end_ms=self._ledger.acknowledged_ms
        )

    def _of(self, number: int) -> _Utterance:
        utterance = self._open.get(number)
        if utterance is None:
            self._count += 1
            utterance = _Utterance(item_id=f"item_{self._session_id}_{self._count}")
            self._open[number] = utterance
        return utterance


def _word(word: Word, base_ms: int) -> TranscribedWord:
    return TranscribedWord(
        word=word.text,
        start=(base_ms + word.start_ms) / _MS_PER_S,
        end=(base_ms + word.end_ms) / _MS_PER_S,
        confidence=word.confidence,
    )
