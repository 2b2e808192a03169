"""The ledger of one process: what its calls came to, by the hour."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headpond.telemetry.report import CallReport
from headpond.units import REQUESTS

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Account:
    """One line of the ledger.

    Attributes:
        hour_s: When its hour began, in Unix seconds.
        tenant: Who was served.
        workload: The record's name.
        model: The name that was asked for.
        bundle: What answered, `name@version+digest12`.
        outcome: `ok`, or the code of the error that calls ended with.
        unit: A work unit, or `requests`.
    """

    hour_s: int
    tenant: str
    workload: str
    model: str
    bundle: str
    outcome: str
    unit: str


class Ledger:
    """Totals of this hour, and of hours that are not written yet; on one thread."""

    def __init__(self, bundle: str, clock: Callable[[], float] = time.time) -> None:
        """Start with nothing counted.

        Args:
            bundle: What answers here.
            clock: Unix seconds.
        """
        self._bundle = bundle
        self._clock = clock
        self._totals: dict[Account, int] = {}
        self._changed: set[Account] = set()

    def observe(self, report: CallReport) -> None:
        """Count a call that is over; of one that failed or was cancelled what ran of it."""
        call, hour_s = report.call, int(self._clock() // HOUR_S) * HOUR_S
        for unit, amount in ((REQUESTS, 1), *report.work.items()):
            account = Account(
                hour_s,
                call.tenant,
                call.workload,
                call.model,
                self._bundle,
                report.outcome,
                unit,
            )
            self._totals[account] = self._totals.get(account, 0) + amount
            self._changed.add(account)

    def changes(self) -> Mapping[Account, int]:
        """Return the totals that have changed since they were written."""
        return {account: self._totals[account] for account in self._changed}

    def written(self, changes: Mapping[Account, int]) -> None:
        """Note what was written, and forget hours that are over."""
        hour_s = int(self._clock() // HOUR_S) * HOUR_S
        for account, total in changes.items():
            if self._totals[account] != total:
                continue
            self._changed.discard(account)
            if account.hour_s != hour_s:
                del self._totals[account]
