"""Scores of labels, and which of them are given."""

from __future__ import annotations

from math import isclose

import numpy as np
import pytest

from headpond_workloads.vision.engine.labels import Activation, Labels
from headpond_workloads.vision.items import Selection

NAMES = ("a", "b", "c", "b")
EVERY = Selection()


def best(
    logits: list[float],
    selection: Selection = EVERY,
    activation: Activation = "softmax",
) -> list[tuple[int, float]]:
    labels = Labels(NAMES, activation)
    found = labels.best(np.asarray(logits, np.float32), labels.choice(selection))
    assert all(each.label == NAMES[each.index] for each in found)
    return [(each.index, each.score) for each in found]


def test_softmax_adds_up_to_one_and_sigmoid_stands_alone() -> None:
    softmax = best([0.0, 1.0, -1.0, 0.0])
    assert [index for index, _ in softmax] == [1, 0, 3, 2]
    assert isclose(sum(score for _, score in softmax), 1.0)
    sigmoid = best([0.0, 1.0, -1.0, 0.0], activation="sigmoid")
    assert [index for index, _ in sigmoid] == [1, 0, 3, 2]
    assert isclose(sigmoid[0][1], 1 / (1 + np.exp(-1.0)))
    assert sigmoid[1][1] == 0.5


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_extreme_logits_have_scores_from_0_to_1(activation: Activation) -> None:
    scores = best([3e38, -3e38, 0.0, 3e38], activation=activation)
    assert all(0.0 <= score <= 1.0 for _, score in scores)
    assert [index for index, _ in scores][:2] == [0, 3]


def test_ties_come_by_index() -> None:
    assert [index for index, _ in best([1.0, 1.0, 1.0, 1.0])] == [0, 1, 2, 3]


def test_labels_that_share_a_name_are_chosen_together() -> None:
    assert [index for index, _ in best([0.0, 1.0, 5.0, 2.0], Selection(labels=("b",)))] == [3, 1]
    twice = Selection(labels=("b", "a", "b"), top_k=2)
    assert [index for index, _ in best([0.0, 1.0, 5.0, 2.0], twice)] == [3, 1]
