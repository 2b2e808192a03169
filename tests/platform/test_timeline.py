"""Phases of one call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.telemetry.timeline import Timeline
from headpond.testing.clock import FakeClock

PHASES = ("queue", "read", "write", "free")


def test_each_phase_lasts_until_the_next() -> None:
    timeline = Timeline(PHASES, 10.0)
    timeline.enter("read", 11.0)
    timeline.enter("write", 14.0)
    assert timeline.phase == "write"
    assert timeline.durations_s(16.0) == {"queue": 1.0, "read": 3.0, "write": 2.0, "free": 0.0}


def test_a_phase_that_is_passed_over_took_no_time() -> None:
    timeline = Timeline(PHASES, 0.0)
    timeline.enter("write", 2.0)
    assert timeline.durations_s(3.0)["read"] == 0.0


def test_a_phase_that_lies_behind_or_is_not_declared_is_refused() -> None:
    timeline = Timeline(PHASES, 0.0)
    timeline.enter("read", 1.0)
    with pytest.raises(ValueError, match="lies before"):
        timeline.enter("queue", 2.0)
    with pytest.raises(ValueError, match="not in tuple"):
        timeline.enter("lunch", 2.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), max_size=8), st.integers(0, 9))
def test_phases_always_sum_to_the_total(visits: list[tuple[int, int]], rest: int) -> None:
    clock = FakeClock(0.0)
    timeline = Timeline(PHASES, clock())
    for at, waited in sorted(visits):
        clock.advance(waited)
        timeline.enter(PHASES[at], clock())
    clock.advance(rest)
    assert sum(timeline.durations_s(clock()).values()) == clock()


def test_a_fake_clock_never_goes_back() -> None:
    with pytest.raises(ValueError, match="back"):
        FakeClock().advance(-1.0)
