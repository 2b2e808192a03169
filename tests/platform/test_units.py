"""Arithmetic of work."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.units import Work, WorkUnit

works = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)).map(lambda got: Work(**got))


def test_absent_units_are_zero() -> None:
    work = Work(tokens=3, pages=0)
    assert (work["tokens"], work["pages"], work["words"]) == (3, 0, 0)
    assert list(work) == ["tokens"]
    assert "pages" not in work


def test_negative_work_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Work(tokens=-1)
    with pytest.raises(ValueError, match="negative"):
        Work(tokens=1) - Work(tokens=2)


@given(works, works, works)
def test_adding_is_a_commutative_monoid(a: Work, b: Work, c: Work) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Work() == a
    assert (a + b) - b == a
    assert hash(a + b) == hash(b + a)


@given(works, st.integers(0, 5))
def test_repeating_is_adding_again(work: Work, times: int) -> None:
    assert work * times == sum([work] * times, Work())


def test_weighing_uses_the_weights_of_the_units() -> None:
    units = {
        "a": WorkUnit(name="a", summary="", weight=2.0),
        "b": WorkUnit(name="b", summary="", weight=0.5),
    }
    assert Work(a=3, b=4).weigh(units) == 8.0
    assert Work().weigh(units) == 0.0


def test_the_header_names_every_unit_once() -> None:
    assert Work(input_tokens=3, output_tokens=16).header() == "input_tokens=3, output_tokens=16"


@given(works)
def test_work_crosses_processes(work: Work) -> None:
    assert pickle.loads(pickle.dumps(work)) == work  # noqa: S301 - our own bytes
