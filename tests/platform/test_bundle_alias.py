"""Aliases: weights split traffic in proportion, deterministically."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.bundle.alias import Alias, AliasTable
from headpond.errors import BundleError

# Their hashes are at most 0.016 from evenly spread, so a share is at most 0.032 off.
TOKENS = [f"request-{number}" for number in range(2000)]

weights = st.dictionaries(
    st.sampled_from([f"m@1.{minor}.0" for minor in range(5)]),
    st.integers(0, 100) | st.floats(0, 1e6),
    min_size=1,
).filter(lambda by_target: sum(by_target.values()) > 1e-300)


@given(weights=weights, token=st.text())
def test_the_same_token_always_gets_the_same_target(weights: dict[str, float], token: str) -> None:
    chosen = Alias(name="chat", weights=weights).choose(token)
    assert chosen == Alias(name="chat", weights=dict(weights)).choose(token)
    assert weights[chosen] > 0


@settings(max_examples=25)
@given(weights=weights)
def test_traffic_is_split_in_proportion(weights: dict[str, float]) -> None:
    alias = Alias(name="chat", weights=weights)
    counts = Counter(alias.choose(token) for token in TOKENS)
    for target, weight in weights.items():
        share = weight / sum(weights.values())
        assert counts[target] / len(TOKENS) == pytest.approx(share, abs=0.035)


def test_two_aliases_split_independently() -> None:
    halves = {"a": 1.0, "b": 1.0}
    chat, code = Alias(name="chat", weights=halves), Alias(name="code", weights=halves)
    same = sum(chat.choose(token) == code.choose(token) for token in TOKENS)
    assert 800 < same < 1200


@given(low=st.integers(0, 100), high=st.integers(0, 100))
def test_a_growing_canary_share_moves_tokens_to_it_only(low: int, high: int) -> None:
    low, high = sorted((low, high))
    before = Alias(name="chat", weights={"old": 100 - low, "new": low})
    after = Alias(name="chat", weights={"old": 100 - high, "new": high})
    for token in TOKENS[:200]:
        if before.choose(token) == "new":
            assert after.choose(token) == "new"


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ({}, "needs a name and a target"),
        ({"a": -1}, "not negative"),
        ({"a": float("nan")}, "finite"),
        ({"a": float("inf")}, "finite"),
        ({"a": 0, "b": 0}, "sum to more than 0"),
    ],
)
def test_an_alias_that_splits_nothing_is_refused(weights: dict[str, float], says: str) -> None:
    with pytest.raises(BundleError, match=says) as caught:
        Alias(name="chat", weights=weights)
    assert caught.value.param == "aliases.chat" or "aliases.chat." in (caught.value.param or "")


def test_weights_that_overflow_are_refused() -> None:
    with pytest.raises(BundleError, match="sum"):
        Alias(name="chat", weights={"a": 1.7e308, "b": 1.7e308})


def test_a_table_lists_every_target_and_knows_no_other_name() -> None:
    table = AliasTable({"chat": {"a": 1, "b": 0}})
    assert table.targets() == {"chat": ("a", "b")}
    assert table.choose("chat", "token") == "a"
    assert table.choose("other", "token") is None
    assert AliasTable().targets() == {}


def test_a_target_that_is_not_ready_is_passed_over_and_the_others_keep_theirs() -> None:
    table = AliasTable({"chat": {"a": 2, "b": 1, "c": 1, "idle": 0}})
    for token in TOKENS[:300]:
        before = table.choose("chat", token)
        after = table.choose("chat", token, lambda target: target != "b")
        assert after in ("a", "c")
        assert before in (after, "b")
    assert table.choose("chat", "t", lambda _: False) == table.choose("chat", "t")
    assert table.choose("other", "t", lambda _: False) is None


def test_a_broken_table_is_refused_as_a_whole() -> None:
    with pytest.raises(BundleError, match="sum to more than 0"):
        AliasTable({"chat": {"a": 1}, "code": {"a": 0}})
