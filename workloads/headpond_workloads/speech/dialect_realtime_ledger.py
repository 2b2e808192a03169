"""How far the sound of one session has come: sent, committed, in final text, and in time.

Times are milliseconds of the session's clock, which goes on over the calls of a session.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from headpond_workloads.speech.items import Format

_MS_PER_S = 1000
_ROUNDING_MS = 2
"""Clocks that count samples at different rates round differently by as much."""

_MAX_MARKS = 2048
_MARK_MS = 100


@dataclass(slots=True)
class _Due:
    """A short stretch of sound, and when its beginning should have been heard in live speech."""

    start_ms: int
    end_ms: int
    due_s: float


class Ledger:
    """Counts the sound of a session.

    Attributes:
        base_ms: Where the call of now begins.
        sent_ms: The end of what was fed.
        committed_ms: The end of what belongs to an utterance, as was asked or decided.
        acknowledged_ms: The end of what is in final text.
        acknowledged: The last append that is in final text; 0 before the first.
    """

    def __init__(self) -> None:
        """Begin with nothing sent."""
        self.base_ms = self.sent_ms = self.committed_ms = 0
        self.acknowledged_ms = self.acknowledged = 0
        self._frames_bytes = 0
        self._marks: deque[tuple[int, int]] = deque()
        self._due: deque[_Due] = deque()
        self._due_s = 0.0

    def send(self, sequence: int, content: bytes, form: Format, now_s: float) -> int:
        """Count an append that is fed, and return how many milliseconds it adds."""
        self._frames_bytes += len(content)
        length_ms = self._frames_bytes * _MS_PER_S // (form.frame_bytes * form.rate_hz)
        added_ms = self.base_ms + length_ms - self.sent_ms
        self.sent_ms += added_ms
        self._mark(sequence)
        self._due_s = max(now_s, self._due_s) + added_ms / _MS_PER_S
        last = self._due[-1] if self._due else None
        if last is not None and self.sent_ms - last.start_ms < _MARK_MS:
            last.end_ms = self.sent_ms
        else:
            self._due.append(_Due(self.sent_ms - added_ms, self.sent_ms, self._due_s))
        return added_ms

    def acknowledge(self, end_ms: int) -> None:
        """Take in that everything up to `end_ms` is in final text."""
        self.acknowledged_ms = max(self.acknowledged_ms, end_ms)
        while self._marks and self._marks[0][1] <= end_ms + _ROUNDING_MS:
            self.acknowledged = self._marks.popleft()[0]

    def lag_ms(self, waiting_ms: int, now_s: float) -> int:
        """Return how long the first sound that waits has been due.

        Sound is due when it would have been spoken: who sends faster than that is not
        kept waiting by being heard later.
        """
        passed_ms = self.sent_ms - waiting_ms
        while self._due and self._due[0].end_ms <= passed_ms:
            self._due.popleft()
        if not self._due:
            return 0
        return max(0, int((now_s - self._due[0].due_s) * _MS_PER_S))

    def rebase(self, base_ms: int) -> None:
        """Begin another call at `base_ms`: what was sent beyond has to come again, or is lost."""
        self.base_ms = self.sent_ms = self.committed_ms = base_ms
        self._frames_bytes = 0
        self._marks.clear()
        self._due.clear()
        self._due_s = 0.0

    def _mark(self, sequence: int) -> None:
        """Remember where an append ends; of very many, every other one is enough."""
        self._marks.append((sequence, self.sent_ms))
        if len(self._marks) > _MAX_MARKS:
            kept = list(self._marks)[::-2][::-1]
            self._marks = deque(kept)
