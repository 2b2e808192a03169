"""Which tokens may come next: by rules over tokens, and by a grammar where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from headpond.errors import HeadpondError, InvalidRequest
from headpond_workloads.generation.engine.token_gate import Bits, TokenGate
from headpond_workloads.generation.items import NO_RULES, GenerationItem, TokenRules


def gate_of(
    item: GenerationItem,
    grammar: TokenGate | None,
    *,
    encode: Callable[[str], Sequence[int]],
    vocab_tokens: int,
    eos_ids: Iterable[int],
) -> TokenGate | None:
    """Return what an item's output has to pass, or None when any token may come.

    Args:
        item: Its rules, and the tokens that end it.
        grammar: What holds the output to a form, or None.
        encode: Makes tokens of a text, without any of its own.
        vocab_tokens: The width of the logits; the rules' tokens are below it.
        eos_ids: The tokens that end every output.
    """
    if item.rules == NO_RULES:
        return grammar
    return RuleGate(
        vocab_tokens,
        allowed_ids=item.rules.allowed_ids,
        bad_words=words_of(item.rules, encode),
        min_tokens=item.rules.min_tokens,
        end_ids=[each for each in (*eos_ids, *item.stop_ids) if each < vocab_tokens],
        grammar=grammar,
    )


def words_of(rules: TokenRules, encode: Callable[[str], Sequence[int]]) -> list[tuple[int, ...]]:
    """Return the sequences of tokens that must not come: each bad word, alone and behind a space."""
    words = {
        tuple(encode(text)) for word in rules.bad_words for text in (word, f" {word.lstrip()}")
    }
    return [word for word in words if word]


class RuleGate:
    """Holds an output to rules over tokens, within a grammar where there is one."""

    __slots__ = ("_allowed", "_empty", "_ends", "_grammar", "_min_tokens", "_output", "_words")

    def __init__(
        self,
        vocab_tokens: int,
        *,
        allowed_ids: Sequence[int] = (),
        bad_words: Sequence[Sequence[int]] = (),
        min_tokens: int = 0,
        end_ids: Iterable[int] = (),
        grammar: TokenGate | None = None,
    ) -> None:
        """Begin at the start of an output.

        Args:
            vocab_tokens: How many tokens there are.
            allowed_ids: The only ones that may come; none for all.
            bad_words: Sequences of tokens that must not come.
            min_tokens: None of `end_ids` comes before so many others.
            end_ids: The tokens that end the output.
            grammar: What holds the output to a form; it may end when that is complete.
        """
        self._allowed = _bits(allowed_ids or range(vocab_tokens), vocab_tokens)
        self._ends = _bits(end_ids, vocab_tokens)
        self._words = [(tuple(word[:-1]), word[-1]) for word in bad_words]
        self._min_tokens = min_tokens
        self._grammar = grammar
        self._output: list[int] = []
        self._empty = False

    def bits(self) -> Bits:
        """Return which tokens can follow, one bit each; none when none can."""
        grammar = self._grammar
        bits = self._allowed.copy() if grammar is None else self._allowed & grammar.bits()
        for before, last in self._words:
            if not before or tuple(self._output[-len(before) :]) == before:
                bits.view(np.uint8)[last >> 3] &= 0xFF ^ (1 << (last & 7))
        if len(self._output) < self._min_tokens:
            longer = bits & ~self._ends
            if grammar is None or longer.any():
                bits = longer
        self._empty = not bits.any()
        return bits

    def accept(self, token_id: int) -> None:
        """Go on by the token that was chosen."""
        self._output.append(token_id)
        if self._grammar is not None:
            self._grammar.accept(token_id)

    @property
    def complete(self) -> bool:
        """Whether the grammar's form is."""
        return self._grammar is not None and self._grammar.complete

    @property
    def refusal(self) -> HeadpondError | None:
        """Why the output can't go on, if so."""
        refusal = None if self._grammar is None else self._grammar.refusal
        if refusal is None and self._empty:
            return InvalidRequest(
                "allowed_token_ids, bad_words and min_tokens together leave no token",
                param="bad_words" if self._words else "allowed_token_ids",
            )
        return refusal


def _bits(token_ids: Iterable[int], vocab_tokens: int) -> Bits:
    chosen = np.zeros((vocab_tokens + 31) // 32 * 32, dtype=np.bool_)
    chosen[np.fromiter(token_ids, dtype=np.int64)] = True
    return np.packbits(chosen, bitorder="little").view(np.int32)
