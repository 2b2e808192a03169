"""What is known of a call when it is over; metrics, logs and spans are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headpond.call import Call
from headpond.units import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class CallReport:
    """One finished, failed, cancelled or refused call, as its replica saw it.

    Attributes:
        call: The call; its items are never logged.
        outcome: `ok`, or the code of the error it ended with.
        work: What was done for it, also when it failed half-way.
        phases_s: Seconds in each of the replica's phases; empty when refused.
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
