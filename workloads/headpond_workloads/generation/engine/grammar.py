"""What an output must be, held while it is generated: masks over the vocabulary.

llguidance does the parsing. It is kept up by Microsoft, covers JSON schema, regular
expressions and Lark grammars in one engine, and computes a mask in tens of microseconds.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from threading import Lock

import numpy as np
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.hf import from_tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from headpond.errors import InvalidRequest
from headpond_workloads.generation.items import Constraint

_KEPT = 128
"""Compiled grammars that are kept for the next request."""

_SOURCE_CHARS = 256 * 1024
_LIMITS = LLParserLimits(max_grammar_size=200_000, step_max_items=50_000)


class Matcher:
    """Follows one output through its grammar."""

    __slots__ = ("_bits", "_matcher", "_vocab_tokens")

    def __init__(self, matcher: LLMatcher, vocab_tokens: int) -> None:
        """Begin at the start of the grammar that `matcher` is at the start of."""
        self._matcher = matcher
        self._vocab_tokens = vocab_tokens
        self._bits = np.zeros((vocab_tokens + 31) // 32, dtype=np.int32)

    def mask(self, logits: Tensor) -> bool:
        """Set the logits of tokens that can't follow to minus infinity, in place.

        Args:
            logits: One row, of shape [vocabulary].

        Returns:
            Whether any token can follow.
        """
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        allowed = np.unpackbits(self._bits.view(np.uint8), bitorder="little")
        mask = torch.from_numpy(allowed[: self._vocab_tokens] == 0).to(logits.device)
        logits.masked_fill_(mask, float("-inf"))
        return not self._matcher.is_error() and bool(allowed.any())

    def accept(self, token_id: int) -> None:
        """Go on by the token that was chosen."""
        self._matcher.consume_token(token_id)

    @property
    def complete(self) -> bool:
        """Whether the output can't go on: whatever the grammar asks for is there."""
        return self._matcher.is_stopped()


class Grammars:
    """Compiles constraints for one tokenizer; safe to call from several threads."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, vocab_tokens: int, eos_ids: frozenset[int]
    ) -> None:
        """Prepare nothing: reading the vocabulary takes a second, and many never need it.

        Args:
            tokenizer: Its vocabulary is what masks are over.
            vocab_tokens: The width of the logits.
            eos_ids: Tokens that may end an output that is complete.
        """
        self._tokenizer = tokenizer
        self._vocab_tokens = vocab_tokens
        self._eos_ids = sorted(eos_ids)
        self._lock = Lock()
        self._compiled: OrderedDict[tuple[str, str], LLMatcher] = OrderedDict()
        self._native: LLTokenizer | None = None

    def matcher(self, constraint: Constraint) -> Matcher:
        """Return a matcher at the start of a constraint's grammar.

        Raises:
            InvalidRequest: The grammar is not valid, or too large; names the field.
        """
        if len(constraint.source) > _SOURCE_CHARS:
            raise InvalidRequest(
                f"the grammar is longer than {_SOURCE_CHARS} characters", param=constraint.param
            )
        key = (constraint.kind, constraint.source)
        with self._lock:
            compiled = self._compiled.get(key)
            if compiled is None:
                compiled = self._compile(constraint)
                self._compiled[key] = compiled
                if len(self._compiled) > _KEPT:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(key)
            return Matcher(compiled.deep_copy(), self._vocab_tokens)

    def _compile(self, constraint: Constraint) -> LLMatcher:
        if self._native is None:
            self._native = from_tokenizer(
                self._tokenizer, n_vocab=self._vocab_tokens, eos_token=self._eos_ids or None
            )
        try:
            grammar = _grammar(constraint)
        except ValueError as error:
            raise InvalidRequest(
                f"it is no valid grammar: {error}", param=constraint.param
            ) from None
        matcher = LLMatcher(self._native, grammar, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            reason = matcher.get_error().splitlines()[0][:300]
            raise InvalidRequest(f"it can't be held: {reason}", param=constraint.param)
        return matcher


def _grammar(constraint: Constraint) -> str:
    """Return a constraint in llguidance's own form.

    Raises:
        ValueError: It is no valid JSON where it has to be.
    """
    match constraint.kind:
        case "json_object":
            return LLMatcher.grammar_from_json_schema('{"type": "object"}')
        case "json_schema":
            return LLMatcher.grammar_from_json_schema(constraint.source)
        case "regex":
            return LLMatcher.grammar_from_regex(constraint.source)
        case "choice":
            choices = json.loads(constraint.source)
            return LLMatcher.grammar_from_lark(
                "start: " + " | ".join(json.dumps(choice) for choice in choices)
            )
        case "lark":
            return LLMatcher.grammar_from_lark(constraint.source)
