from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headpond_workloads.generation.engine.attention import REACH, reach


@given(st.integers(1, 200_000))
def test_keys_are_padded_by_little(tokens: int) -> None:
    assert tokens <= reach(tokens) <= max(tokens + REACH - 1, tokens * 5 // 4)


@given(st.integers(0, 4000), st.integers(1, REACH))
def test_all_rows_of_a_segment_reach_equally_far(segment: int, offset: int) -> None:
    # Rounding depends on the number of keys, and chunks are cut at segments only.
    assert reach(segment * REACH + offset) == reach((segment + 1) * REACH)
