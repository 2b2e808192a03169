from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headpond_workloads.generation.engine.lookup import TokenIndex


def found(token_ids: list[int], count: int = 3, longest: int = 3) -> list[int]:
    return TokenIndex().continuation(token_ids, count, longest)


def test_what_followed_the_same_tokens_is_proposed() -> None:
    assert found([1, 2, 3, 4, 5, 9, 1, 2, 3]) == [4, 5, 9]


def test_a_longer_match_beats_a_later_one() -> None:
    assert found([1, 2, 3, 7, 7, 3, 8, 8, 1, 2, 3]) == [7, 7, 3]
    assert found([1, 2, 3, 7, 7, 3, 8, 8, 1, 2, 3], longest=1) == [8, 8, 1]


def test_of_equal_matches_the_latest_counts() -> None:
    assert found([1, 2, 5, 1, 2, 6, 1, 2]) == [6, 1, 2]


def test_a_new_token_leads_nowhere() -> None:
    assert found([1, 2, 3]) == []
    assert found([1]) == []


def test_a_loop_goes_on() -> None:
    assert found([9, 4, 4], count=5) == [4] * 5
    assert found([1, 2, 1, 2], count=5) == [1, 2, 1, 2, 1]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 40))
def test_an_index_that_grows_finds_the_same_as_a_new_one(token_ids: list[int], cut: int) -> None:
    index = TokenIndex()
    index.continuation(token_ids[:cut], 4, 3)
    assert index.continuation(token_ids, 4, 3) == found(token_ids, 4)


@given(st.lists(st.integers(0, 2), min_size=2, max_size=30), st.integers(1, 4))
def test_the_longest_match_within_reach_is_taken(token_ids: list[int], longest: int) -> None:
    def common(at: int) -> int:
        length = 0
        while length < min(longest, at + 1) and token_ids[at - length] == token_ids[-1 - length]:
            length += 1
        return length

    ends = range(len(token_ids) - 1)
    best = max((common(at) for at in ends), default=0)
    if best == 0:
        assert found(token_ids, 1, longest) == []
    else:
        latest = max(at for at in ends if common(at) == best)
        assert found(token_ids, 1, longest) == [token_ids[latest + 1]]
