"""Guards: what takes a canary back, and what is chance."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.errors import InvalidRequest
from headpond.rollouts.agreement import Agreement
from headpond.rollouts.chance import chance_of_as_many
from headpond.rollouts.guard import DEFAULT_GUARD, Guard
from headpond.rollouts.tally import Tally, Window
from headpond.testing.clock import FakeClock

NONE = Agreement()


def tally(*, ended: int, failed: int = 0, ttft_s: float = 0.1, spread: float = 0.0) -> Tally:
    """A tally of calls whose times are spread lognormally around a median."""
    luck = random.Random(ended)  # noqa: S311 - made-up times
    found = Tally()
    for _ in range(failed):
        found.fail()
    for _ in range(ended - failed):
        found.finish({"ttft": ttft_s * math.exp(luck.gauss(0, spread))})
    return found


def test_the_default_guard_is_what_it_says() -> None:
    guard = Guard.parse(DEFAULT_GUARD)
    assert (guard.error_rate, guard.min_requests, guard.window_s) == (0.02, 50, 300)
    (bound,) = guard.latencies
    assert (bound.measure, bound.percent, bound.times, bound.seconds) == ("ttft", 95, 1.5, None)


@pytest.mark.parametrize(
    ("text", "says", "param"),
    [
        ("errors=2%", "is none of", "guard.errors"),
        ("error_rate=two", "must be a share", "guard.error_rate"),
        ("error_rate=200%", "must be a share", "guard.error_rate"),
        ("error_rate=1%,error_rate=2%", "twice", "guard.error_rate"),
        ("ttft_p95=1.5", "must be a time", "guard.ttft_p95"),
        ("ttft_p95=0.5x", "more than 1x", "guard.ttft_p95"),
        ("ttft_p0=1.5x", "from 1 to 99", "guard.ttft_p0"),
        ("total_p50=0ms", "must be a time", "guard.total_p50"),
        ("min_requests=0", "is none of", "guard.min_requests"),
        ("window=1x", "must be a time", "guard.window"),
    ],
)
def test_a_guard_that_does_not_read_is_named(text: str, says: str, param: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        Guard.parse(text)
    assert caught.value.param == param


def test_more_errors_than_the_others_are_a_breach() -> None:
    guard = Guard.parse("error_rate=2%,min_requests=50")
    well = tally(ended=1000)
    reason = guard.breach(tally(ended=60, failed=12), well, NONE)
    assert reason is not None
    assert "12 of 60 requests failed" in reason
    assert guard.breach(tally(ended=49, failed=49), well, NONE) is None, "too few to judge by"
    assert guard.breach(tally(ended=60, failed=3), well, NONE) is None, "may be chance"
    as_bad = tally(ended=1000, failed=200)
    assert guard.breach(tally(ended=60, failed=12), as_bad, NONE) is None, "no worse than usual"


def test_a_slower_canary_is_a_breach() -> None:
    guard = Guard.parse("ttft_p95=1.5x,min_requests=50")
    usual = tally(ended=900, spread=0.5)
    reason = guard.breach(tally(ended=100, ttft_s=0.3, spread=0.5), usual, NONE)
    assert reason is not None
    assert reason.startswith("ttft_p95: ")
    assert guard.breach(tally(ended=100, spread=0.5), usual, NONE) is None
    assert guard.breach(tally(ended=100, ttft_s=9), tally(ended=49), NONE) is None
    assert guard.breach(Tally(), Tally(), NONE) is None


def test_a_bound_in_seconds_needs_nobody_to_compare_with() -> None:
    guard = Guard.parse("ttft_p50=200ms,min_requests=10")
    assert guard.breach(tally(ended=50, ttft_s=0.3), Tally(), NONE) is not None
    assert guard.breach(tally(ended=50, ttft_s=0.15), Tally(), NONE) is None


def test_answers_that_differ_are_a_breach() -> None:
    guard = Guard.parse("agreement=95%,min_requests=20")
    reason = guard.breach(Tally(), Tally(), Agreement(compared=40, agreed=20, example="at .text"))
    assert reason is not None
    assert "20 of 40 answers agree" in reason
    assert guard.breach(Tally(), Tally(), Agreement(compared=40, agreed=38)) is None
    assert guard.breach(Tally(), Tally(), Agreement(compared=19, agreed=0)) is None


def test_a_canary_that_is_as_good_is_left_alone() -> None:
    """A thousand canaries with the same distribution as the others; a few false alarms at most."""
    guard = Guard.parse(DEFAULT_GUARD)
    luck = random.Random(1)  # noqa: S311 - made-up times
    usual = tally(ended=3000, failed=30, spread=0.8)
    alarms = 0
    for _ in range(1000):
        canary = Tally()
        for _ in range(60):
            if luck.random() < 0.01:
                canary.fail()
            else:
                canary.finish({"ttft": 0.1 * math.exp(luck.gauss(0, 0.8))})
        alarms += guard.breach(canary, usual, NONE) is not None
    assert alarms <= 2


@given(tried=st.integers(1, 300), found=st.integers(0, 300), percent=st.integers(1, 99))
def test_chance_is_the_tail_of_the_binomial_distribution(
    tried: int, found: int, percent: int
) -> None:
    share = percent / 100
    exact = sum(
        math.comb(tried, hits) * share**hits * (1 - share) ** (tried - hits)
        for hits in range(found, tried + 1)
    )
    assert chance_of_as_many(found, tried, share) == pytest.approx(exact, rel=1e-6, abs=1e-9)


def test_nothing_is_chance_where_nothing_may_happen() -> None:
    assert chance_of_as_many(1, 50, 0.0) == 0.0
    assert chance_of_as_many(0, 50, 0.0) == 1.0
    assert chance_of_as_many(50, 50, 1.0) == 1.0


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50), st.integers(1, 99))
def test_quantiles_are_at_most_a_bucket_off(times_s: list[float], percent: int) -> None:
    found = Tally()
    for seconds in times_s:
        found.finish({"total": seconds})
    exact = sorted(times_s)[math.ceil(percent / 100 * len(times_s)) - 1]
    quantile = found.quantile_s("total", percent / 100)
    assert quantile is not None
    assert max(exact, 1e-4) * 0.999 <= quantile <= max(exact, 1e-4) * 1.101
    assert found.longer_than("total", quantile * 1.0001) <= sum(s > quantile for s in times_s)


def test_a_window_forgets() -> None:
    clock = FakeClock()
    window = Window(10.0, clock)
    window.now.fail()
    clock.advance(5)
    window.now.finish({"total": 0.1})
    assert (window.total().ended, window.total().failed) == (2, 1)
    clock.advance(6)
    assert (window.total().ended, window.total().failed) == (1, 0)
    clock.advance(60)
    assert window.total().ended == 0
