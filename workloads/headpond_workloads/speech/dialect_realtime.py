"""OpenAI's realtime transcription: `/v1/realtime?intent=transcription` as a conversation.

A call begins with the first sound, so that who only listens holds no place. When it ends
with an error, the session lives on: the next sound begins another call, at the first append
that is in no final text yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Literal

from headpond.call import Failed, Output
from headpond.conversation import Effect, Feed, Handshake, HangUp, Open, Say
from headpond.dialect import Ask, Heading
from headpond.dialect import ItemEvent as CallEvent
from headpond.errors import (
    DeadlineExceeded,
    HeadpondError,
    InvalidRequest,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
)
from headpond.units import Work
from headpond_workloads.speech.dialect_realtime_errors import (
    CommitEmpty,
    SessionExpired,
    error_event,
    expiry_event,
    gap_event,
    loss_event,
)
from headpond_workloads.speech.dialect_realtime_ledger import Ledger
from headpond_workloads.speech.dialect_realtime_reading import Message, sound
from headpond_workloads.speech.dialect_realtime_sequence import Gap, Numbered, Sequencer
from headpond_workloads.speech.dialect_realtime_settings import (
    MODEL_PARAM,
    check_fixed,
    format_of,
    from_beta,
    listening_of,
    model_of,
    refuse_beta,
    updated,
)
from headpond_workloads.speech.dialect_realtime_utterances import Utterances
from headpond_workloads.speech.items import Clear, Commit, Retune, Sound, Stream
from headpond_workloads.speech.schema_realtime import (
    Append,
    ClearBuffer,
    ClientEvent,
    CommitBuffer,
    SessionSettings,
    SessionUpdate,
)
from headpond_workloads.speech.schema_realtime_events import (
    BufferCleared,
    Resumption,
    ServerEvent,
    SessionEvent,
    SessionResumed,
    SessionState,
    TranscriptionBehind,
)

MIN_COMMIT_MS = 100
BEHIND_MS = 1_000
"""From here on the client is told that text comes late."""

TOO_LATE_MS = 10_000
"""From here on the session is closed."""

_REPEAT_S = 5.0
_TRY_AGAIN_LATER = 1013
_GOING_AWAY = 1001


class _Phase(Enum):
    """Where a session is with its call."""

    IDLE = auto()  # none; the next sound begins one
    OPENING = auto()
    OPEN = auto()
    ENDING = auto()  # it failed, and is not over yet
    REFUSED = auto()  # it was refused for its settings, which the client has to change


class RealtimeConversation:
    """One session."""

    def __init__(self, handshake: Handshake) -> None:
        """Begin with how the client came.

        Raises:
            InvalidRequest: It wants a session of another kind.
            ModelNotFound: It wants a model that is not there.
        """
        intent = handshake.query.get("intent", "transcription")
        if intent != "transcription":
            raise InvalidRequest("sessions here are for intent=transcription", param="intent")
        self._handshake = handshake
        self._settings = SessionSettings()
        self._model = handshake.query.get("model") or None
        if self._model is not None:
            handshake.check_model(self._model)
        self._ledger = Ledger()
        self._sequencer = Sequencer()
        self._utterances = Utterances(handshake.session_id, self._ledger)
        self._phase = _Phase.IDLE
        self._refusal: HeadpondError | None = None  # what it was refused for
        self._said = 0
        self._warned_s: float | None = None

    def begin(self) -> Sequence[Effect]:
        """Say that the session is there."""
        return [self._say(self._session("session.created"))]

    def hear(self, message: str | bytes, now_s: float) -> Sequence[Effect]:
        """Take in an event of the client; what is wrong with it is said, and changes nothing."""
        event_id: str | None = None
        try:
            read = Message(message)
            event_id = read.event_id
            return self._do(read.event(), now_s)
        except HeadpondError as error:
            return [self._say(error_event(error, event_id))]

    def opened(self, heading: Heading) -> Sequence[Effect]:
        """Take in that the call was admitted."""
        self._phase = _Phase.OPEN
        return []

    def given(self, events: Sequence[CallEvent]) -> Sequence[Effect]:
        """Say what the recogniser gave."""
        effects: list[Effect] = []
        for event in events:
            if isinstance(event, Output):
                effects += self._say_all(self._utterances.render(event.payload))
            elif isinstance(event, Failed) and isinstance(event.error, PayloadTooLarge):
                return [*effects, *self._expire(event.error)]
            elif isinstance(event, Failed):
                effects += self._lose(event.error)
                self._phase = _Phase.ENDING
        return effects

    def ended(self, work: Work) -> Sequence[Effect]:
        """Take in that the call is over."""
        if self._phase is not _Phase.ENDING:
            self._utterances.restart()
            self._ledger.rebase(self._ledger.sent_ms)
        self._phase = _Phase.IDLE
        return []

    def failed(self, error: HeadpondError) -> Sequence[Effect]:
        """Say why there is no call, or none any more."""
        phase, self._phase = self._phase, _Phase.IDLE
        if phase is _Phase.ENDING:
            return []
        if isinstance(error, DeadlineExceeded):
            return self._expire(error)
        if phase is _Phase.OPENING:
            if isinstance(error, NotReady) and self._sequencer.numbered:
                return self._lose(error)  # the successor of a lost replica is on its way
            if isinstance(error, RateLimited | Overloaded):
                return [self._say(error_event(error)), HangUp(_TRY_AGAIN_LATER, error.code or "")]
            if not error.retryable:
                self._phase, self._refusal = _Phase.REFUSED, error
                self._ledger.rebase(self._ledger.sent_ms)
                return [self._say(error_event(error))]
        return self._lose(error)

    def behind(self, waiting_units: int, now_s: float) -> Sequence[Effect]:
        """Warn a client whose text comes late, and close the session when it comes too late."""
        effects = self._pass(self._sequencer.overdue(now_s), now_s, None)
        if self._phase is not _Phase.OPEN:
            return effects
        lag_ms = self._ledger.lag_ms(waiting_units, now_s)
        if lag_ms >= TOO_LATE_MS:
            error = Overloaded(f"the text is {lag_ms / 1000:.0f} s behind the sound")
            return [
                *effects,
                self._say(error_event(error)),
                HangUp(_TRY_AGAIN_LATER, error.message),
            ]
        if lag_ms < BEHIND_MS:
            self._warned_s = None
        elif self._warned_s is None or now_s - self._warned_s >= _REPEAT_S:
            self._warned_s = now_s
            effects.append(self._say(TranscriptionBehind(lag_ms=lag_ms)))
        return effects

    def resumed(self) -> Sequence[Effect]:
        """Say from where on a client that came back should send."""
        return [
            self._say(
                SessionResumed(
                    session_id=self._handshake.session_id, next_sequence=self._sequencer.expected
                )
            )
        ]

    def _do(self, event: ClientEvent, now_s: float) -> list[Effect]:
        if isinstance(event, Append):
            content = sound(event.audio)
            arrived = self._sequencer.offer(event.sequence, content, now_s)
            return self._pass(arrived, now_s, event.event_id)
        if isinstance(event, CommitBuffer):
            return self._commit(event, now_s)
        if isinstance(event, ClearBuffer):
            return self._clear()
        if isinstance(event, SessionUpdate):
            return self._update(event)
        raise InvalidRequest("this event means nothing here", param="type")

    def _pass(
        self, arrived: Iterable[Numbered | Gap], now_s: float, event_id: str | None
    ) -> list[Effect]:
        """Feed sound whose turn it is, and say what never came."""
        effects: list[Effect] = []
        for each in arrived:
            if isinstance(each, Gap):
                effects.append(self._say(gap_event(each, event_id)))
            elif each.content and self._phase not in (_Phase.REFUSED, _Phase.ENDING):
                if self._phase is _Phase.IDLE:
                    effects.append(self._open())
                form = format_of(self._settings)
                units = self._ledger.send(each.sequence, each.content, form, now_s)
                effects.append(Feed(Sound(each.content), units))
        return effects

    def _open(self) -> Open:
        self._phase = _Phase.OPENING
        stream = Stream(format_of(self._settings), listening_of(self._settings))
        return Open(
            Ask(model=model_of(self._settings) or self._model, items=(stream,), stream=True)
        )

    def _commit(self, event: CommitBuffer, now_s: float) -> list[Effect]:
        """End the utterance here, after all that came before; what is too short is refused."""
        effects = self._pass(self._sequencer.flush(now_s), now_s, event.event_id)
        ledger = self._ledger
        waiting_ms = ledger.sent_ms - ledger.committed_ms
        if waiting_ms >= MIN_COMMIT_MS and self._runs:
            ledger.committed_ms = ledger.sent_ms
            return [*effects, Feed(Commit())]
        error = self._refusal or CommitEmpty(
            f"Error committing input audio buffer: buffer too small. Expected at least "
            f"{MIN_COMMIT_MS}ms of audio, but buffer only has {waiting_ms:.2f}ms of audio."
        )
        return [*effects, self._say(error_event(error, event.event_id))]

    def _clear(self) -> list[Effect]:
        self._sequencer.restart()
        self._utterances.drop()
        self._ledger.committed_ms = self._ledger.sent_ms
        self._forgive()
        effects: list[Effect] = [Feed(Clear())] if self._runs else []
        return [*effects, self._say(BufferCleared())]

    def _update(self, event: SessionUpdate) -> list[Effect]:
        beta = event.type == "transcription_session.update"
        if not beta:
            refuse_beta(event.session)
        before = self._settings
        after = updated(before, from_beta(event.session) if beta else event.session)
        self._check_model(before, after)
        effects: list[Effect] = []
        if self._runs or self._phase is _Phase.ENDING:
            check_fixed(before, after)
            if self._runs and listening_of(before) != listening_of(after):
                effects.append(Feed(Retune(listening_of(after))))
        self._settings = after
        self._forgive()
        return [*effects, self._say(self._session("session.updated"))]

    def _check_model(self, before: SessionSettings, after: SessionSettings) -> None:
        """Refuse a new model that is not there, by the name of its field."""
        model = model_of(after)
        if model is None or model == model_of(before):
            return
        try:
            self._handshake.check_model(model)
        except HeadpondError as error:
            error.param = MODEL_PARAM
            raise

    def _forgive(self) -> None:
        """Let the next sound try again what was refused."""
        self._refusal = None
        if self._phase is _Phase.REFUSED:
            self._phase = _Phase.IDLE

    def _lose(self, error: HeadpondError) -> list[Effect]:
        """Give up the call; who numbers appends sends those again that are in no final text."""
        effects = self._say_all(self._utterances.fail(error))
        effects.append(self._say(loss_event(error, self._ledger.acknowledged)))
        if self._sequencer.numbered:
            self._sequencer.rewind(self._ledger.acknowledged + 1)
            self._ledger.rebase(self._ledger.acknowledged_ms)
        else:
            self._ledger.rebase(self._ledger.sent_ms)
        return effects

    def _expire(self, error: HeadpondError) -> list[Effect]:
        """End the session, which has lasted as long as it may."""
        effects = self._say_all(self._utterances.fail(error))
        effects.append(self._say(expiry_event(error, self._ledger.acknowledged)))
        return [*effects, HangUp(_GOING_AWAY, SessionExpired.code or "")]

    @property
    def _runs(self) -> bool:
        """Whether there is a call, or will be one, that can be fed."""
        return self._phase in (_Phase.OPENING, _Phase.OPEN)

    def _session(self, kind: Literal["session.created", "session.updated"]) -> SessionEvent:
        state = SessionState(
            id=self._handshake.session_id,
            audio=self._settings.audio,
            resume=Resumption(window_s=self._handshake.resume_s),
        )
        return SessionEvent(type=kind, session=state)

    def _say_all(self, events: Iterable[ServerEvent]) -> list[Effect]:
        return [self._say(event) for event in events]

    def _say(self, event: ServerEvent) -> Say:
        self._said += 1
        numbered = event.model_copy(update={"event_id": f"event_{self._said}"})
        return Say(numbered.model_dump_json(), self._said)
