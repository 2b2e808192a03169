"""The order that follows from scores, and what becomes of bad ones."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exchanges import events
from headpond.call import Failed
from headpond.errors import EngineFailed, InvalidRequest
from headpond_workloads.reranking.dialect_ranking import (
    pairs,
    ranked,
    relevances,
    scores,
    short,
)
from headpond_workloads.reranking.items import Score

SCORES = st.lists(st.sampled_from([-1.5, -0.0, 0.0, 0.25, 0.5, 3.0]), max_size=30)
ITEMS = pairs("q", ["a", "b"], "documents")


def score(value: float) -> Score:
    return Score(logits=(value * 10,), scores=(value,), tokens=2)


@given(SCORES, st.integers(1, 40) | st.none())
def test_the_best_come_first_and_equals_keep_their_order(
    values: list[float], top_n: int | None
) -> None:
    order = ranked(values, top_n)
    assert len(order) == (len(values) if top_n is None else min(top_n, len(values)))
    assert len(set(order)) == len(order)
    keys = [(-values[at], at) for at in order]
    assert keys == sorted(keys)
    left = set(range(len(values))) - set(order)
    assert all((-values[at], at) > keys[-1] for at in left)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_are_as_long_as_a_float32_needs(value: float) -> None:
    assert struct.pack("<f", short(value)) == struct.pack("<f", value)
    assert len(f"{short(value)!r}".partition("e")[0].strip("-0.").replace(".", "")) <= 9 or (
        short(value).is_integer()
    )


def test_scores_come_in_any_order() -> None:
    found = scores(events(score(0.1), score(0.2)), ITEMS)
    assert relevances(found) == [0.1, 0.2]
    assert relevances(found, raw=True) == [1.0, 2.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_never_gets_out(bad: float) -> None:
    for broken in (
        Score(logits=(bad,), scores=(0.5,), tokens=1),
        Score(logits=(0.5,), scores=(bad,), tokens=1),
    ):
        with pytest.raises(EngineFailed) as failure:
            scores(events(score(0.1), broken), ITEMS)
        assert failure.value.param == "documents.1"


def test_a_failed_pair_is_named() -> None:
    with pytest.raises(EngineFailed) as failure:
        scores([*events(score(0.1)), Failed(1, EngineFailed())], ITEMS)
    assert failure.value.param == "documents.1"
    with pytest.raises(InvalidRequest) as refusal:
        scores([Failed(0, InvalidRequest("no", param="query"))], ITEMS)
    assert refusal.value.param == "query"


def test_a_model_of_several_labels_does_not_rank() -> None:
    several = Score(logits=(1.0, 2.0), scores=(0.3, 0.7), tokens=1)
    with pytest.raises(InvalidRequest, match="2 labels") as refusal:
        relevances([several])
    assert refusal.value.param == "model"
