"""Vectors as text, and in fewer bits."""

from __future__ import annotations

import json
import math
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond_workloads.embedding import quantization
from headpond_workloads.embedding.vector_json import row_json
from headpond_workloads.embedding.vectors import decode, encode, is_finite, numbers, rows

FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20)
SMALL = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=20)


def packed(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


@given(FLOATS)
def test_json_says_exactly_the_float32(values: list[float]) -> None:
    text = row_json(packed(values))
    assert packed(json.loads(text)) == packed(values)


@given(FLOATS)
def test_json_needs_nine_digits_at_most(values: list[float]) -> None:
    for number in row_json(packed(values)).strip("[]").split(","):
        digits = number.partition("e")[0].replace(".", "").lstrip("-0").rstrip("0")
        assert len(digits) <= 9


@given(FLOATS)
def test_base64_is_little_endian_float32(values: list[float]) -> None:
    assert decode(encode(packed(values))) == values


@pytest.mark.parametrize("text", ["?", "AAA=", "AAAAAAA="])
def test_what_is_no_base64_of_float32_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 5, 9])
def test_one_bad_value_is_found(bad: float, at: int) -> None:
    values = [3.4e38] * 10
    assert is_finite(packed(values))
    values[at] = bad
    assert not is_finite(packed(values))


def test_opposite_infinities_do_not_cancel_out() -> None:
    assert not is_finite(packed([math.inf, -math.inf]))


def test_rows_are_cut_apart() -> None:
    assert [list(numbers(row)) for row in rows(packed([1, 2, 3, 4, 5, 6]), 2)] == [
        [1, 2],
        [3, 4],
        [5, 6],
    ]


@given(SMALL)
def test_int8_keeps_the_order_of_values_and_the_direction(values: list[float]) -> None:
    quantized = quantization.int8(packed(values))
    assert all(-127 <= value <= 127 for value in quantized)
    in_order = [value for _, value in sorted(zip(values, quantized, strict=True))]
    assert all(low <= high for low, high in pairwise(in_order))
    length = math.hypot(*values)
    for value, whole in zip(values, quantized, strict=True):
        assert abs(whole - (127 * value / length if length else 0)) <= 0.5001


def test_int8_does_not_depend_on_the_length() -> None:
    assert quantization.int8(packed([0.3, -0.4])) == quantization.int8(packed([3, -4]))
    assert quantization.int8(packed([0.3, -0.4])) == [76, -102]
    assert quantization.uint8(packed([0.3, -0.4])) == [204, 26]


def test_no_direction_is_nothing() -> None:
    assert quantization.int8(packed([0.0, 0.0])) == [0, 0]


@given(SMALL)
def test_bits_are_signs_eight_to_a_byte(values: list[float]) -> None:
    unsigned = quantization.ubinary(packed(values))
    assert len(unsigned) == -(-len(values) // 8)
    bits = "".join(f"{byte:08b}" for byte in unsigned)
    assert [bit == "1" for bit in bits[: len(values)]] == [value > 0 for value in values]
    assert "1" not in bits[len(values) :]
    assert quantization.binary(packed(values)) == [byte - 128 for byte in unsigned]
