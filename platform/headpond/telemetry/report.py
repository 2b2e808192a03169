"""What is known of a call or request when it is over: metrics, logs and spans are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headpond.call import Call
from headpond.telemetry.outcomes import OK
from headpond.units import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class CallReport:
    """One finished, failed, cancelled or refused call, as its replica saw it.

    Attributes:
        call: The call; its items are never logged.
        outcome: `ok`, or the code of the error it ended with.
        work: What was done for it, also when it failed half-way.
        phases_s: Seconds in each of the replica's phases, which sum to the total; empty when
            refused.
        first_output_s: From submission to the first output; None when there was none.
        gap_s: Mean seconds between outputs; None below two outputs.
        total_s: From submission to the end.
        preemptions: How often one of its items lost its state and was computed again.
    """

    call: Call
    outcome: str
    work: Work
    phases_s: Mapping[str, float]
    first_output_s: float | None
    gap_s: float | None
    total_s: float
    preemptions: int = 0

    @property
    def refused(self) -> bool:
        """Whether it was refused before any work."""
        return self.outcome != OK and not self.phases_s


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestReport:
    """One request to a declared route, as the HTTP layer saw it.

    Attributes:
        request_id: Echoed in `x-request-id`.
        method: Of HTTP.
        route: The declared path, never the caller's own.
        workload: The record's name.
        tenant: Who was served; None when that never became known.
        status: What was sent; 499 when the caller went away before.
        outcome: `ok`, or the code of the error it ended with.
        refused: Whether it ended before any work.
        parent: W3C `traceparent` as the caller sent it, or None.
        trace: W3C `traceparent` of the request itself, or None where nothing is traced.
        total_s: From its headers to the end.
    """

    request_id: str
    method: str
    route: str
    workload: str
    tenant: str | None
    status: int
    outcome: str
    refused: bool
    parent: str | None
    trace: str | None
    total_s: float
