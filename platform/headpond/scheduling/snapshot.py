"""What a loop looks like from outside at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopSnapshot:
    """A consistent view of a loop; taking one never waits for the engine.

    Attributes:
        queued_calls: Calls of which no item was part of a step yet.
        queued_items: Items that wait.
        queued_work: Their weighed work.
        running_slots: Items that run.
        preempted_slots: Items that lost their state and wait to go on.
        state_held_bytes: Retained state in use.
        state_budget_bytes: The most there may be.
        steps: Steps done since the start, failed ones too.
        failed_steps_in_a_row: Steps that raised since the last that did not.
        last_step_age_s: Seconds since the last step ended; None before the first.
        busy_s: Seconds the turn in progress has taken; None while the engine is idle.
        stuck: Whether that is longer than the loop's `stuck_after_s`.
        alive: Whether the engine's thread runs.
        stopping: Whether new work is refused for good.
        preemptions: How often items lost their state since the start.
        finished: Calls that are over, by outcome: `ok` or an error's code.
        refused: Calls that were not admitted, by the error's code.
        received: Calls that came, whatever became of them.
        drain_rate: Weighed work that ends per busy second while there is enough to do; None
            until measured.
        lost: Whether the engine has lost a process that it computes with.
    """

    queued_calls: int
    queued_items: int
    queued_work: float
    running_slots: int
    preempted_slots: int
    state_held_bytes: int
    state_budget_bytes: int
    steps: int
    failed_steps_in_a_row: int
    last_step_age_s: float | None
    busy_s: float | None
    stuck: bool
    alive: bool
    stopping: bool
    preemptions: int
    finished: Mapping[str, int]
    refused: Mapping[str, int]
    drain_rate: float | None
    received: int = 0
    lost: bool = False
