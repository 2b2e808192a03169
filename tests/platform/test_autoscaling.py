"""Replicas by the work there is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from headpond.autoscaling import ByWork, load_of
from headpond.scheduling.snapshot import LoopSnapshot

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

IDLE = LoopSnapshot(
    queued_calls=0,
    queued_items=0,
    queued_work=0.0,
    running_slots=0,
    preempted_slots=0,
    state_held_bytes=0,
    state_budget_bytes=1000,
    steps=0,
    failed_steps_in_a_row=0,
    last_step_age_s=None,
    busy_s=None,
    stuck=False,
    alive=True,
    stopping=False,
    preemptions=0,
    finished={},
    refused={},
    drain_rate=None,
)


def wanted(*replicas: LoopSnapshot, slots: int | None = 16, target: int = 3) -> float:
    """The replicas that the default policy wants for some snapshots."""
    loads = [load_of(snapshot, slots) for snapshot in replicas]
    told = {
        name: {at: load[name] for at, load in enumerate(loads)}
        for name in ("occupancy", "backlog_s")
        if loads
    }
    context = SimpleNamespace(aggregated_metrics=told or None, target_num_replicas=target)
    replicas_wanted, state = ByWork()(cast("AutoscalingContext", context))
    assert not state
    return replicas_wanted


def test_idle_replicas_are_not_wanted() -> None:
    assert wanted(IDLE, IDLE) == 0


def test_full_slots_are_a_full_replica_however_few_calls() -> None:
    full = replace(IDLE, running_slots=16)
    assert wanted(full, full) == pytest.approx(2.5)
    assert wanted(replace(IDLE, running_slots=8)) == pytest.approx(0.625)


def test_state_fills_a_replica_before_its_slots_do() -> None:
    assert wanted(replace(IDLE, running_slots=2, state_held_bytes=1000)) == pytest.approx(1.25)


def test_waiting_work_counts_by_its_time() -> None:
    waiting = replace(IDLE, running_slots=16, queued_work=300.0, drain_rate=100.0)
    assert wanted(waiting) == pytest.approx((1 + 3) / 0.8)
    faster = replace(waiting, drain_rate=1000.0)
    assert wanted(faster) == pytest.approx(1.3 / 0.8)


def test_a_rate_that_is_not_known_counts_as_no_time() -> None:
    assert wanted(replace(IDLE, queued_work=300.0, running_slots=16)) == pytest.approx(1.25)


def test_where_batches_are_formed_a_running_one_fills_it() -> None:
    assert wanted(replace(IDLE, busy_s=0.01), IDLE, slots=None) == pytest.approx(1.25)


def test_who_has_not_told_yet_changes_nothing() -> None:
    assert wanted(target=4) == 4


@pytest.mark.parametrize("wrong", [{"target_load": 0.0}, {"patience_s": -1.0}])
def test_a_policy_that_aims_at_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        ByWork(**wrong)
