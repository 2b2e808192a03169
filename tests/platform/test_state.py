"""State terms bound to a bundle, in bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.errors import BundleError
from headpond.state import DTYPE_BYTES, StateModel, StateTerm

TERMS = (
    StateTerm(name="kv_cache", shape=("layers", 2, "tokens", "kv_heads", 64)),
    StateTerm(name="ids", shape=("tokens",), dtype="int64"),
    StateTerm(name="buffer", shape=("max_output_tokens", 8), dtype="uint8"),
)
SYMBOLS = {"layers": 30, "kv_heads": 3}


def model(granule: int = 16, dtype: str = "bfloat16") -> StateModel:
    return StateModel(terms=TERMS, symbols=SYMBOLS, dtype=dtype, axis="tokens", granule=granule)


def test_bytes_are_the_products_of_the_shapes() -> None:
    held = model().request_bytes({"max_output_tokens": 10}, 32)
    assert held == 30 * 2 * 32 * 3 * 64 * 2 + 32 * 8 + 10 * 8


def test_the_axis_is_held_in_whole_granules() -> None:
    shape = {"max_output_tokens": 1}
    sizes = [model().request_bytes(shape, units) for units in (0, 1, 16, 17, 32)]
    assert sizes[1] == sizes[2] < sizes[3] == sizes[4]
    assert sizes[0] == 8


def test_the_axis_wins_over_a_dimension_of_the_same_name() -> None:
    shape = {"tokens": 999, "max_output_tokens": 0}
    term = StateTerm(name="ids", shape=("tokens",), dtype="int64")
    state = StateModel(terms=(term,), symbols={}, dtype="float32", axis="tokens")
    assert state.request_bytes(shape, 5) == 40


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 64))
def test_more_units_never_hold_less(a: int, b: int, granule: int) -> None:
    shape = {"max_output_tokens": 3}
    less, more = sorted((a, b))
    state = model(granule)
    assert state.request_bytes(shape, less) <= state.request_bytes(shape, more)


@pytest.mark.parametrize(("dtype", "width"), DTYPE_BYTES.items())
def test_compute_terms_take_the_bundles_dtype(dtype: str, width: int) -> None:
    term = StateTerm(name="x", shape=("n",))
    state = StateModel(terms=(term,), symbols={}, dtype=dtype, axis="n")
    assert state.request_bytes({}, 1) == width


def test_symbols_are_the_names_in_the_shape() -> None:
    assert TERMS[0].symbols == {"layers", "tokens", "kv_heads"}


def test_an_unknown_dtype_and_an_empty_granule_are_refused() -> None:
    with pytest.raises(BundleError, match="no known width") as unknown:
        model(dtype="float3")
    assert unknown.value.param == "execution.dtype"
    with pytest.raises(BundleError, match="below 1"):
        model(granule=0)
