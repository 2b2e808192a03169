from __future__ import annotations

import math

import pytest

from headpond_workloads.oip.classification import classify
from headpond_workloads.oip.datatypes import Datatype
from headpond_workloads.oip.tensor import Tensor


def test_the_greatest_of_each_row_come_first() -> None:
    scores = Tensor.of_numbers("y", Datatype.FP32, [2, 3], [0.5, 2.0, 0.1, 1.0, -1.0, 3.0])
    classes = classify(scores, 2)
    assert (classes.name, classes.shape) == ("y", (2, 2))
    assert classes.elements() == [b"2:1", b"0.5:0", b"3:2", b"1:0"]


def test_a_single_axis_is_one_row_and_labels_are_shown() -> None:
    scores = Tensor(
        name="y",
        datatype=Datatype.FP64,
        shape=(3,),
        data=Tensor.of_numbers("", Datatype.FP64, [3], [0.1, math.nan, 0.25]).data,
        labels=("ant", "bee"),
    )
    classes = classify(scores, 10)
    assert classes.shape == (3,)
    assert classes.elements() == [b"0.25:2", b"0.1:0:ant", b"nan:1:bee"]


def test_the_axes_after_the_first_are_one() -> None:
    scores = Tensor.of_numbers("y", Datatype.INT32, [1, 2, 2], [3, 9, 9, 1])
    assert classify(scores, 3).elements() == [b"9:1", b"9:2", b"3:0"]


def test_values_tell_all_of_a_datatype_apart() -> None:
    near = Tensor.of_numbers("y", Datatype.FP32, [2], [1.0, 1.0000001])
    assert len({each.partition(b":")[0] for each in classify(near, 2).elements()}) == 2


@pytest.mark.parametrize("datatype", ["BYTES", "BOOL"])
def test_texts_and_truths_have_no_order(datatype: str) -> None:
    data = b"\0" * Datatype(datatype).width_bytes
    tensor = Tensor(name="y", datatype=Datatype(datatype), shape=(1,), data=data)
    with pytest.raises(ValueError, match=f"entries of {datatype} cannot be classes"):
        classify(tensor, 1)


def test_nothing_has_no_classes() -> None:
    empty = Tensor.of_numbers("y", Datatype.FP32, [2, 0], [])
    assert classify(empty, 5).shape == (2, 0)
