"""What a realtime client remembers, to go on where its connection or the server's worker was lost."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from headpond_workloads.speech.client_realtime_events import (
    AGAIN,
    LAST_COMMIT,
    NOTHING_TO_COMMIT,
    RealtimeEvent,
    append_text,
    clear_text,
    commit_text,
)
from headpond_workloads.speech.schema_realtime_events import (
    BufferAcknowledged,
    BufferCleared,
    ErrorEvent,
    ServerEvent,
    SessionEvent,
    SessionResumed,
)

REST_S = 0.5
"""So long a client waits before it tries again, where the server does not say how long."""

_MOST_KEPT_BYTES = 16 * 2**20
"""Of texts: four minutes at 24 kHz. In a long silence nothing is acknowledged."""
_MOST_LOSSES = 60
"""So many in a row without any text: the worker has no successor."""
_SILENCE_MS = 200
"""More than the server asks for to commit it."""


class _Kind(Enum):
    APPEND = auto()
    COMMIT = auto()
    CLEAR = auto()


@dataclass(frozen=True, slots=True)
class _Sent:
    """What was sent: an append, by its number, or what came behind that one."""

    kind: _Kind
    sequence: int
    text: str


@dataclass(frozen=True, slots=True)
class Loss:
    """What the server has lost: send again from an append on, in a while."""

    next_sequence: int
    wait_s: float


class Memory:
    """What was sent and is in no final text yet, and up to where the server was heard.

    Appends are numbered, so that each counts once, however often it is sent. One thread may send
    while another takes events in.

    Attributes:
        window_s: How long the server keeps the session for a client that is away; 0 before it
            has said so.
        sequence: The number of the last append.
    """

    def __init__(self, update: str, rate_hz: int) -> None:
        """Remember the event that sets the session up, and the sound's rate."""
        self.window_s = 0.0
        self.sequence = 0
        self._update: str | None = update
        self._silence = bytes(2 * (rate_hz * _SILENCE_MS // 1000))
        self._session_id = ""
        self._last_event = 0
        self._sent: deque[_Sent] = deque()
        self._bytes = 0
        self._ends = False
        self._losses = 0
        self._lock = threading.Lock()

    def append(self, sound: bytes) -> str:
        """Return the event that sends more sound, and keep it."""
        with self._lock:
            return self._append(sound)

    def commit(self) -> str:
        """Return the event that ends an utterance, and keep it."""
        with self._lock:
            return self._keep(_Kind.COMMIT, commit_text())

    def clear(self) -> str:
        """Return the event that drops what is not committed, and keep it instead of that."""
        with self._lock:
            self._sent.clear()
            self._bytes = 0
            return self._keep(_Kind.CLEAR, clear_text())

    def end(self) -> str:
        """Return the commit behind which no sound comes, and keep that it was sent."""
        with self._lock:
            self._ends = True
            return commit_text(LAST_COMMIT)

    def address(self) -> dict[str, str]:
        """Return the query by which the client comes back to its session."""
        return {"session": self._session_id, "last_event": str(self._last_event)}

    def take(self, event: RealtimeEvent) -> bool:
        """Take in an event; return False for one that only answers what was sent again."""
        with self._lock:
            if isinstance(event, ServerEvent):
                number = event.event_id.removeprefix("event_")
                self._last_event = int(number) if number.isdecimal() else self._last_event
            if isinstance(event, SessionEvent):
                self._session_id = event.session.id
                self.window_s = event.session.resume.window_s
                if event.type == "session.updated":
                    self._update = None
            elif isinstance(event, BufferAcknowledged):
                self._losses = 0
                self._drop(event.sequence)
            elif isinstance(event, BufferCleared):
                self._forget_clear()
        return not (
            isinstance(event, ErrorEvent)
            and event.error.event_id == AGAIN
            and event.error.code == NOTHING_TO_COMMIT
        )

    def loss(self, event: RealtimeEvent) -> Loss | None:
        """Return what an event says is lost and can be sent again; None for any other one."""
        if isinstance(event, SessionResumed):
            return Loss(event.next_sequence, 0.0)
        if not isinstance(event, ErrorEvent) or not event.error.resumable:
            return None
        self._losses += 1
        acknowledged = event.error.acknowledged_sequence
        if acknowledged is None or self._losses > _MOST_LOSSES:
            return None
        wait_ms = event.error.retry_after_ms
        return Loss(acknowledged + 1, REST_S if wait_ms is None else wait_ms / 1000)

    def again(self, next_sequence: int) -> list[str]:
        """Return what to send again to a server that waits for this append.

        Whether it has the last commit can't be known, so some silence comes before another one:
        a server that has both has one utterance more, without text.
        """
        with self._lock:
            texts = [] if self._update is None else [self._update]
            texts += self._again(next_sequence)
            if self._ends:
                texts += [self._append(self._silence), commit_text(LAST_COMMIT)]
            return texts

    def _again(self, next_sequence: int) -> Iterator[str]:
        first = next((each for each in self._sent if each.kind is not _Kind.COMMIT), None)
        # What is not kept any more can't come again; clearing lets the server go on without.
        if first is not None and first.kind is _Kind.APPEND and first.sequence > next_sequence:
            yield clear_text()
        for each in self._sent:
            if each.kind is _Kind.APPEND and each.sequence >= next_sequence:
                yield each.text
            elif each.kind is _Kind.COMMIT and each.sequence >= next_sequence - 1:
                yield commit_text(AGAIN)
            elif each.kind is _Kind.CLEAR and each.sequence >= next_sequence - 1:
                yield each.text

    def _append(self, sound: bytes) -> str:
        self.sequence += 1
        return self._keep(_Kind.APPEND, append_text(sound, self.sequence))

    def _keep(self, kind: _Kind, text: str) -> str:
        self._sent.append(_Sent(kind, self.sequence, text))
        self._bytes += len(text)
        while self._bytes > _MOST_KEPT_BYTES:
            self._bytes -= len(self._sent.popleft().text)
        return text

    def _drop(self, acknowledged: int) -> None:
        while self._sent and self._sent[0].sequence <= acknowledged:
            self._bytes -= len(self._sent.popleft().text)

    def _forget_clear(self) -> None:
        if self._sent and self._sent[0].kind is _Kind.CLEAR:
            self._bytes -= len(self._sent.popleft().text)
