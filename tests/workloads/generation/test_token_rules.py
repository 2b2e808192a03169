from __future__ import annotations

import numpy as np
import pytest

from headpond.errors import InvalidRequest
from headpond_workloads.generation.engine.token_gate import Bits
from headpond_workloads.generation.engine.token_rules import RuleGate

VOCAB = 70


class Grammar:
    """Lets a fixed run of tokens through, and then the end token 0."""

    def __init__(self, *token_ids: int) -> None:
        self._left = [*token_ids, 0]
        self.refusal: InvalidRequest | None = None

    def bits(self) -> Bits:
        return packed({self._left[0]})

    def accept(self, token_id: int) -> None:
        assert token_id == self._left.pop(0)

    @property
    def complete(self) -> bool:
        return not self._left


def packed(token_ids: set[int]) -> Bits:
    chosen = np.zeros(96, dtype=np.bool_)
    chosen[sorted(token_ids)] = True
    return np.packbits(chosen, bitorder="little").view(np.int32)


def allowed(gate: RuleGate) -> set[int]:
    bits = np.unpackbits(gate.bits().view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def after(gate: RuleGate, *token_ids: int) -> set[int]:
    for token_id in token_ids:
        gate.accept(token_id)
    return allowed(gate)


EVERY = set(range(VOCAB))


def test_without_a_rule_every_token_of_the_vocabulary_may_come() -> None:
    assert allowed(RuleGate(VOCAB)) == EVERY


def test_nothing_but_allowed_tokens() -> None:
    assert allowed(RuleGate(VOCAB, allowed_ids=(69, 3, 32))) == {3, 32, 69}


def test_nothing_ends_before_the_minimum() -> None:
    gate = RuleGate(VOCAB, min_tokens=2, end_ids=(0, 31, 64))
    assert after(gate) == after(gate, 5) == EVERY - {0, 31, 64}
    assert after(gate, 6) == EVERY
    assert not gate.complete


@pytest.mark.parametrize("last", [0, 31, 32, 63, 69])
def test_the_last_token_of_a_bad_word_does_not_follow_the_others(last: int) -> None:
    gate = RuleGate(VOCAB, bad_words=[(7,), (5, 6, last)])
    assert after(gate) == after(gate, 6) == after(gate, 5) == EVERY - {7}
    assert after(gate, 6) == EVERY - {7, last}
    assert after(gate, 9) == EVERY - {7}


def test_a_grammar_is_held_too() -> None:
    gate = RuleGate(VOCAB, allowed_ids=(3, 4, 0), grammar=Grammar(3, 4))
    assert allowed(gate) == {3}
    assert after(gate, 3) == {4}
    assert after(gate, 4) == {0}
    gate.accept(0)
    assert gate.complete
    assert gate.refusal is None


def test_a_form_that_is_complete_may_end_before_the_minimum() -> None:
    gate = RuleGate(VOCAB, min_tokens=9, end_ids=(0,), grammar=Grammar(3))
    assert after(gate, 3) == {0}


@pytest.mark.parametrize(
    ("gate", "param"),
    [
        (RuleGate(VOCAB, allowed_ids=(3,), grammar=Grammar(5)), "allowed_token_ids"),
        (RuleGate(VOCAB, allowed_ids=(3,), bad_words=[(3,)]), "bad_words"),
        (RuleGate(VOCAB, allowed_ids=(0,), min_tokens=1, end_ids=(0,)), "allowed_token_ids"),
    ],
)
def test_rules_that_leave_nothing_are_the_callers_mistake(gate: RuleGate, param: str) -> None:
    assert allowed(gate) == set()
    assert isinstance(gate.refusal, InvalidRequest)
    assert gate.refusal.param == param


def test_a_refusal_of_the_grammar_comes_first() -> None:
    grammar = Grammar(3)
    grammar.refusal = InvalidRequest("it can't be held", param="guided_regex")
    assert RuleGate(VOCAB, grammar=grammar).refusal is grammar.refusal
