"""Where the time of one answer went, for `server-timing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def complete(
    phases: Sequence[str], replica_s: Mapping[str, float], *, before_s: float, total_s: float
) -> dict[str, float]:
    """Return the seconds of every phase as they add up on this side of the wire.

    Args:
        phases: The record's phases, in order; the last one is delivery.
        replica_s: What the replica measured.
        before_s: Time before the call was submitted; counts towards the first phase.
        total_s: Time since the request came. What nobody else accounts for is delivery.
    """
    spent = {phase: replica_s.get(phase, 0.0) for phase in phases}
    spent[phases[0]] += before_s
    delivery = phases[-1]
    spent[delivery] = 0.0
    spent[delivery] = max(0.0, total_s - sum(spent.values()))
    return spent


def server_timing(phases_s: Mapping[str, float]) -> str:
    """Return phases as W3C Server-Timing has them, in milliseconds."""
    return ", ".join([f"{name};dur={spent * 1000:.3f}" for name, spent in phases_s.items()])
