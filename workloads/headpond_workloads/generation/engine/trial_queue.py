"""Who may wait for what is slow: few, and no tenant all places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition, Event
from typing import Generic, TypeVar

from headpond.errors import Overloaded

Result = TypeVar("Result")

MOST = 4
MOST_OF_TENANT = 2
"""Trials that run or wait to run; one takes a second or two at the most."""

MOST_WAITING = 60
MOST_WAITING_OF_TENANT = 40
"""Requests that wait for a trial, their own or the same of another. Each holds up a thread
of the loop's planner, which has more of them for this."""

_RETRY_AFTER_S = 2.0
_PATIENCE_S = 1.0
"""How long a request waits for a place: usual trials take milliseconds."""


@dataclass(eq=False, slots=True)
class _Trial(Generic[Result]):
    tenant: str
    over: Event = field(default_factory=Event)
    result: Result | None = None


class TrialQueue(Generic[Result]):
    """Lets few trials be made at once, each once; safe to call from several threads."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        """Start with nobody waiting; who gets no place within `patience_s` is refused."""
        self._changed = Condition()
        self._patience_s = patience_s
        self._trials: dict[bytes, _Trial[Result]] = {}
        self._waiting: list[str] = []

    def once(self, key: bytes, tenant: str, make: Callable[[], Result]) -> Result:
        """Return what `make` does, or what it does for another who asked for the same.

        Raises:
            Overloaded: Too many trials or requests wait.
        """
        trial, own = self._enter(key, tenant)
        try:
            if own:
                trial.result = make()
            else:
                trial.over.wait()
        finally:
            self._leave(key, tenant, trial if own else None)
        if trial.result is None:  # the other one failed, for no fault of the form
            raise Overloaded("the form could not be tried", retry_after_s=_RETRY_AFTER_S)
        return trial.result

    def _enter(self, key: bytes, tenant: str) -> tuple[_Trial[Result], bool]:
        """Return the trial of `key`, and whether it is the caller's to make."""
        with self._changed:
            waits = self._waiting
            if len(waits) >= MOST_WAITING or waits.count(tenant) >= MOST_WAITING_OF_TENANT:
                raise _overloaded()
            waits.append(tenant)
            if not self._changed.wait_for(lambda: self._has_place(key, tenant), self._patience_s):
                waits.remove(tenant)
                raise _overloaded()
            joined = self._trials.get(key)
            if joined is not None:
                return joined, False
            own = self._trials[key] = _Trial(tenant)
            return own, True

    def _has_place(self, key: bytes, tenant: str) -> bool:
        theirs = sum(trial.tenant == tenant for trial in self._trials.values())
        return key in self._trials or (len(self._trials) < MOST and theirs < MOST_OF_TENANT)

    def _leave(self, key: bytes, tenant: str, own: _Trial[Result] | None) -> None:
        with self._changed:
            self._waiting.remove(tenant)
            if own is not None:
                del self._trials[key]
                own.over.set()
                self._changed.notify_all()


def _overloaded() -> Overloaded:
    message = "too many new forms of outputs wait to be tried"
    return Overloaded(message, retry_after_s=_RETRY_AFTER_S)
