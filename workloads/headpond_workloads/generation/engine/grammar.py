"""What an output must be, held while it is generated: masks over the vocabulary.

llguidance does the parsing: it is kept up (also by vLLM's and SGLang's use of it), covers JSON
schema, regular expressions and Lark grammars in one engine that bounds the work of each
step, composes them, and computes a mask in tens of microseconds. xgrammar compiles ahead for
the whole vocabulary, which takes seconds for the schemas of some requests.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from headpond.errors import EngineFailed, InvalidRequest
from headpond_workloads.generation.engine.grammar_child import LIMITS, refusal
from headpond_workloads.generation.engine.grammar_trial import GrammarTrial
from headpond_workloads.generation.engine.logits import Masks
from headpond_workloads.generation.engine.reading import TokenizerReading
from headpond_workloads.generation.engine.token_gate import Bits, TokenGate
from headpond_workloads.generation.engine.trial_queue import TrialQueue
from headpond_workloads.generation.engine.vocabulary import spelled_out

_KEPT = 64
_KEPT_BYTES = 128 * 2**20
"""Compiled grammars that are kept for the next request, and what they take together."""

_REFUSED_KEPT = 1024
"""Refusals that are remembered, so that the same form takes nothing when it comes again."""

_SOURCE_CHARS = 512 * 1024


class Matcher:
    """Follows one output through its grammar."""

    __slots__ = ("_bits", "_matcher", "_param")

    def __init__(self, matcher: LLMatcher, vocab_tokens: int, param: str) -> None:
        """Begin where `matcher` is; `param` is the wire field it came from."""
        self._matcher = matcher
        self._param = param
        self._bits = np.zeros((vocab_tokens + 31) // 32, dtype=np.int32)

    def bits(self) -> Bits:
        """Return which tokens can follow, one bit each; none when none can."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        if self._matcher.is_error():
            self._bits.fill(0)
        return self._bits

    def accept(self, token_id: int) -> None:
        """Go on by the token that was chosen."""
        self._matcher.consume_token(token_id)

    @property
    def complete(self) -> bool:
        """Whether the output can't go on: whatever the grammar asks for is there."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def refusal(self) -> InvalidRequest | None:
        """Why the grammar can't be followed any further, if so."""
        if not self._matcher.is_error():
            return None
        return InvalidRequest(f"it can't be held: {refusal(self._matcher)}", param=self._param)


def masks(gates: Sequence[TokenGate], vocab_tokens: int) -> Masks:
    """Return which tokens can't follow, of shape [gates, vocabulary]."""
    bits = np.stack([each.bits() for each in gates]).view(np.uint8)
    forbidden = np.unpackbits(~bits, axis=1, count=vocab_tokens, bitorder="little")
    return forbidden.view(np.bool_)


class Grammars:
    """Compiles grammars for one tokenizer; safe to call from several threads."""

    def __init__(
        self, tokenizer: TokenizerReading, vocab_tokens: int, eos_ids: frozenset[int]
    ) -> None:
        """Prepare nothing: reading the vocabulary takes a while, and many never need it.

        Args:
            tokenizer: Its vocabulary is what masks are over.
            vocab_tokens: The width of the logits.
            eos_ids: Tokens that may end an output that is complete.
        """
        self._tokenizer = tokenizer
        self._added = {
            each["content"]: each["id"] for each in json.loads(tokenizer.backend)["added_tokens"]
        }
        self._vocab_tokens = vocab_tokens
        self._eos_ids = sorted(eos_ids)
        self._lock = Lock()
        self._compiled: OrderedDict[bytes, tuple[LLMatcher, int]] = OrderedDict()
        self._refused: OrderedDict[bytes, str] = OrderedDict()
        self._trials: TrialQueue[LLMatcher | str] = TrialQueue()
        self._native: LLTokenizer | None = None
        self._trial: GrammarTrial | None = None

    def matcher(self, grammar: str, param: str, tenant: str) -> Matcher:
        """Return a matcher at the start of a grammar in llguidance's own form.

        Waits for a second or two at the most when the grammar is new, and for those before.

        Args:
            grammar: The grammar.
            param: The wire field it came from.
            tenant: Whose request it is: no tenant may have all the trials.

        Raises:
            InvalidRequest: The grammar is not valid, or too large; names the field.
            Overloaded: It is new, and too many others are.
            EngineFailed: It can't be tried on this machine.
        """
        if len(grammar) > _SOURCE_CHARS:
            raise InvalidRequest(
                f"the grammar is longer than {_SOURCE_CHARS} characters", param=param
            )
        try:
            digest = blake2b(grammar.encode(), digest_size=16).digest()
        except UnicodeEncodeError:
            raise InvalidRequest("it is no text: it holds half a character", param=param) from None
        found = self._found(digest)
        if found is None:
            found = self._trials.once(digest, tenant, lambda: self._tried(digest, grammar))
        if isinstance(found, str):
            raise InvalidRequest(f"it can't be held: {found}", param=param)
        with self._lock:
            copy = found.deep_copy()
        return Matcher(copy, self._vocab_tokens, param)

    def token(self, text: str) -> str:
        """Return a text in Lark: as the token that it is for this model, or spelled out."""
        native, _ = self._prepared()
        token_id = self._added.get(text)
        if token_id is not None and native.is_special_token(token_id):
            return f"<[{token_id}]>"
        return json.dumps(text, ensure_ascii=False)

    def _found(self, digest: bytes) -> LLMatcher | str | None:
        """Return a compiled grammar, or why there is none, or None when it is new."""
        with self._lock:
            if digest in self._refused:
                self._refused.move_to_end(digest)
                return self._refused[digest]
            if digest not in self._compiled:
                return None
            self._compiled.move_to_end(digest)
            return self._compiled[digest][0]

    def _tried(self, digest: bytes, grammar: str) -> LLMatcher | str:
        """Try a grammar and compile it; return why not if so."""
        found = self._found(digest)  # by one who was just ready
        if found is not None:
            return found
        vocabulary, trial = self._prepared()
        verdict = trial.check(grammar)
        if verdict.refusal is not None:
            self._refuse(digest, verdict.refusal)
            return verdict.refusal
        compiled = LLMatcher(vocabulary, grammar, log_level=0, limits=LIMITS)
        self._keep(digest, compiled, verdict.size_bytes + len(grammar))
        return compiled

    def _refuse(self, digest: bytes, reason: str) -> None:
        with self._lock:
            self._refused[digest] = reason
            while len(self._refused) > _REFUSED_KEPT:
                self._refused.popitem(last=False)

    def _keep(self, digest: bytes, compiled: LLMatcher, size: int) -> None:
        with self._lock:
            self._compiled[digest] = (compiled, size)
            total = sum(each for _, each in self._compiled.values())
            while self._compiled and (len(self._compiled) > _KEPT or total > _KEPT_BYTES):
                _, (_, dropped) = self._compiled.popitem(last=False)
                total -= dropped

    def _ends(self) -> list[int]:
        """Return the tokens that may end an output; the tokenizer's where the model names none."""
        if self._eos_ids:
            return self._eos_ids
        named = self._added.get(str(self._tokenizer.special_tokens.get("eos_token")))
        if named is None:
            raise EngineFailed("the model has no token that could end an output of a form")
        return [named]

    def _prepared(self) -> tuple[LLTokenizer, GrammarTrial]:
        """Read the vocabulary, once."""
        with self._lock:
            if self._native is None or self._trial is None:
                text = spelled_out(self._tokenizer.backend)
                ends = self._ends()
                self._native = LLTokenizer(text, n_vocab=self._vocab_tokens, eos_token=ends)
                self._trial = GrammarTrial(
                    {"tokenizer": text, "vocab_tokens": self._vocab_tokens, "eos_ids": [*ends]}
                )
            return self._native, self._trial
