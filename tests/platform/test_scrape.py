"""Scrapes, and what happened between two of them."""

from __future__ import annotations

import pytest

from headpond.telemetry.scrape import Interval, Scrape, interpolated

EARLY = """\
# TYPE work counter
work_total{model="a",replica="1"} 10
work_total{model="a",replica="2"} 100
work_total{model="b",replica="1"} 5
# TYPE late histogram
late_bucket{le="0.1",model="a"} 0
late_bucket{le="1.0",model="a"} 0
late_bucket{le="+Inf",model="a"} 0
late_count{model="a"} 0
late_sum{model="a"} 0
"""
LATE = """\
# TYPE work counter
work_total{model="a",replica="1"} 30
work_total{model="a",replica="2"} 4
work_total{model="b",replica="1"} 5
work_total{model="c",replica="3"} 8
# TYPE late histogram
late_bucket{le="0.1",model="a"} 5
late_bucket{le="1.0",model="a"} 10
late_bucket{le="+Inf",model="a"} 10
late_count{model="a"} 10
late_sum{model="a"} 4
"""


@pytest.fixture
def look() -> Interval:
    return Interval(before=Scrape.parse(EARLY, 100.0), after=Scrape.parse(LATE, 102.0))


def test_rates_are_sums_over_what_has_the_labels(look: Interval) -> None:
    assert look.rate("work_total", model="b") == 0
    assert look.rate("work_total", model="a", replica="1") == 10
    assert look.rate("work_total", model="nobody") == 0


def test_a_counter_that_began_anew_counts_from_zero(look: Interval) -> None:
    assert look.rate("work_total", model="a", replica="2") == 2
    assert look.rate("work_total", model="c") == 4
    assert look.rate("work_total") == 10 + 2 + 4


def test_quantiles_are_interpolated_within_buckets(look: Interval) -> None:
    assert look.quantile(0.5, "late", model="a") == pytest.approx(0.1)
    assert look.quantile(0.25, "late", model="a") == pytest.approx(0.05)
    assert look.quantile(0.75, "late", model="a") == pytest.approx(0.55)
    assert look.quantile(0.5, "late", model="b") is None


def test_above_the_last_bound_no_more_is_known() -> None:
    assert interpolated(0.99, [(1.0, 1.0), (float("inf"), 10.0)]) == 1.0
    assert interpolated(0.5, []) is None


def test_values_of_a_label_are_sorted(look: Interval) -> None:
    assert look.after.values("work_total", "model") == ["a", "b", "c"]
    assert look.after.values("work_total", "replica", model="a") == ["1", "2"]
    assert look.after.total("work_total", model="a") == 34
