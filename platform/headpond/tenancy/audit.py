"""The audit log: who uses which key, and which keys are refused; never a key itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum

import structlog
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

_AGAIN_S = 3600.0
_WINDOW_S = 60.0
_MOST_REFUSALS = 60
"""So many refused uses are logged in a minute; the others are counted, and their number told."""


class KeyUse(StrEnum):
    """What became of a use of a key."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    DENIED = "permission_denied"


class Audit(Collector):
    """Logs each key's first use in an hour, and refused uses, bounded in number.

    On the event loop's thread. Keys are named by the first digits of their hashes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing told; `clock` is monotonic seconds."""
        self._clock = clock
        self._log: FilteringBoundLogger = structlog.get_logger("headpond.audit")
        self._uses: Counter[KeyUse] = Counter()
        self._told_s: dict[str, float] = {}
        self._window_s = clock()
        self._in_window = 0
        self._untold = 0

    def used(self, key: str, tenant: str, route: str) -> None:
        """Note that a key was taken.

        Args:
            key: Its identifier; one of the configured ones, so there are not many.
            tenant: Who is served.
            route: A declared path, never a caller's own.
        """
        self._uses[KeyUse.OK] += 1
        now_s = self._clock()
        if now_s - self._told_s.get(key, -_AGAIN_S) >= _AGAIN_S:
            self._told_s[key] = now_s
            self._log.info("key_use", key=key, tenant=tenant, route=route, outcome=KeyUse.OK)

    def missing(self) -> None:
        """Count a request that showed no key; it tells nothing about one."""
        self._uses[KeyUse.MISSING] += 1

    def refused(self, key: str, tenant: str | None, route: str, outcome: KeyUse) -> None:
        """Note that a key was refused.

        Args:
            key: Its identifier.
            tenant: Whose it is; None when it is nobody's.
            route: A declared path, never a caller's own.
            outcome: Why.
        """
        self._uses[outcome] += 1
        now_s = self._clock()
        if now_s - self._window_s >= _WINDOW_S:
            self._window_s, self._in_window = now_s, 0
        if self._in_window == _MOST_REFUSALS:
            self._untold += 1
            return
        self._in_window += 1
        untold, self._untold = self._untold, 0
        self._log.warning(
            "key_use", key=key, tenant=tenant, route=route, outcome=outcome, untold=untold
        )

    def forget(self, kept: set[str]) -> None:
        """Forget when keys were told of that are not configured any more."""
        self._told_s = {key: told_s for key, told_s in self._told_s.items() if key in kept}

    def collect(self) -> Iterator[Metric]:
        """Yield how often keys were used, by outcome."""
        uses = CounterMetricFamily("headpond_key_uses", "Uses of API keys.", labels=("outcome",))
        for outcome in KeyUse:
            uses.add_metric((outcome,), self._uses[outcome])
        yield uses
