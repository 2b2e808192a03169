"""Aliases: weights split traffic in proportion, deterministically, and changes are undone."""

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


def test_an_alias_is_read_from_text() -> None:
    assert Alias.parse("chat=m@1.2.0") == Alias(name="chat", weights={"m@1.2.0": 1.0})
    split = Alias.parse("chat = m@1.2.0:90, m@1.3.0:10")
    assert split == Alias(name="chat", weights={"m@1.2.0": 90.0, "m@1.3.0": 10.0})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chat", "NAME=TARGET"),
        ("chat=", "NAME=TARGET"),
        ("chat=a,,b", "NAME=TARGET"),
        ("chat=a:1,a:2", "each target once"),
        ("chat=a:x", "'x', which is no number"),
        ("chat=a:-1", "not negative"),
        ("chat=a:nan", "finite"),
        ("chat=a:inf", "finite"),
        ("chat=a:0,b:0", "sum to more than 0"),
        ("=a", "needs a name"),
    ],
)
def test_an_alias_that_splits_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(BundleError, match=says) as caught:
        Alias.parse(text)
    assert (caught.value.param or "").startswith("aliases")


def test_weights_that_overflow_are_refused() -> None:
    with pytest.raises(BundleError, match="sum"):
        Alias(name="chat", weights={"a": 1.7e308, "b": 1.7e308})


def test_a_table_lists_every_target_and_knows_no_other_name() -> None:
    table = AliasTable({"chat": {"a": 1, "b": 0}})
    assert table.targets() == {"chat": ("a", "b")}
    assert table.choose("chat", "token") == "a"
    assert table.choose("other", "token") is None
    assert AliasTable().targets() == {}


def test_a_canary_is_promoted_in_one_call_and_rolled_back_in_one_call() -> None:
    table = AliasTable({"chat": {"old": 1}})
    table.put(Alias(name="chat", weights={"old": 90, "new": 10}))
    assert table.promote("chat", "new").weights == {"new": 1.0}
    assert {table.choose("chat", token) for token in TOKENS[:100]} == {"new"}
    assert table.rollback("chat").weights == {"old": 90, "new": 10}
    assert table.rollback("chat").weights == {"old": 1}
    with pytest.raises(BundleError, match="was never changed"):
        table.rollback("chat")
    assert table.choose("chat", "token") == "old"


def test_only_a_target_of_an_alias_can_be_promoted() -> None:
    table = AliasTable({"chat": {"old": 1}})
    with pytest.raises(BundleError, match="no target 'new'; it has old"):
        table.promote("chat", "new")
    with pytest.raises(BundleError, match="no alias 'code'"):
        table.promote("code", "old")
    with pytest.raises(BundleError, match="no alias 'code'"):
        table.rollback("code")
    assert table.targets() == {"chat": ("old",)}


def test_a_long_history_forgets_its_oldest_steps() -> None:
    table = AliasTable({"chat": {"v": 1}})
    for number in range(100):
        table.put(Alias(name="chat", weights={f"v{number}": 1}))
    last = [table.rollback("chat") for _ in range(8)][-1]
    assert last.weights == {"v91": 1}
    with pytest.raises(BundleError, match="was never changed"):
        [table.rollback("chat") for _ in range(92)]


def test_a_broken_table_is_refused_as_a_whole() -> None:
    with pytest.raises(BundleError, match="sum to more than 0"):
        AliasTable({"chat": {"a": 1}, "code": {"a": 0}})
