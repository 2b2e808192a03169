"""Slots advanced by vLLM, which has the keys and values and decides who goes how far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from headpond.engine import Quantum
from headpond.errors import ContextLengthExceeded, EngineFailed, HeadpondError
from headpond_workloads.generation.engine.core import Advance
from headpond_workloads.generation.engine.sampler import Drawn
from headpond_workloads.generation.engine.sequence import Portion, Slot
from headpond_workloads.generation.engine.token_rules import words_of
from headpond_workloads.generation.engine.vllm.params import check_item, sampled_of
from headpond_workloads.generation.engine.vllm.process import VllmProcess
from headpond_workloads.generation.engine.vllm.wire import Likely, News, Request
from headpond_workloads.generation.items import GenerationItem


@dataclass(frozen=True, slots=True)
class VllmMemory:
    """The memory of the blocks, which is vLLM's own; see `CacheMemory`."""

    block_tokens: int

    def clear(self, blocks: Sequence[int]) -> None:
        """Leave it to vLLM."""


@dataclass(slots=True)
class _Sequence:
    """What vLLM has said of a slot's sequence, and the slot was not told yet.

    Attributes:
        number: What it is called in the process.
        computed: Its tokens that were ever computed, or found.
        cached: Those that were found in the prefix cache.
        drawn: Tokens that were generated.
        scores: How likely the prompt's tokens were, but the first.
        over: Whether the process has forgotten it.
        error: Why it ends without a result.
    """

    number: int
    computed: int = 0
    cached: int = 0
    drawn: list[Drawn] = field(default_factory=list)
    scores: Sequence[Drawn] = ()
    over: bool = False
    error: HeadpondError | None = None

    def learn(self, news: News) -> None:
        self.computed = max(self.computed, news.get("computed", 0))  # it may lose some again
        self.cached = news.get("cached", self.cached)
        self.over = news.get("finished", False)
        token_ids, likely = news.get("token_ids", ()), news.get("likely", ())
        self.drawn += _drawn(likely) if likely else [Drawn(token_id=each) for each in token_ids]
        self.scores = _drawn(news.get("prompt", ())) or self.scores
        if (failed := news.get("failed")) is not None:
            self.over = True
            if failed == "not finite":
                self.drawn.append(Drawn(token_id=None))
            else:
                self.error = EngineFailed("vLLM did not take the request")


class VllmCore:
    """See `Core`: one step of vLLM a step, for all sequences that it has.

    A slot's blocks here say how much the loop has reserved for it, no more: vLLM has blocks of
    its own, as many. Tokens that come for a slot which is not in the step, or beyond what is
    reserved for it, are kept until it is its turn. What vLLM is given it keeps until it is
    over: a slot that loses its blocks here loses nothing there.
    """

    def __init__(
        self,
        process: VllmProcess,
        *,
        context_tokens: int,
        eos_ids: Iterable[int],
        spelling: Callable[[str], Sequence[int]],
    ) -> None:
        """Start with nothing to compute.

        Args:
            process: Has vLLM.
            context_tokens: The most tokens of a sequence.
            eos_ids: The tokens that end a sequence.
            spelling: Makes tokens of a text, without any of its own.
        """
        self._process = process
        self._context_tokens = context_tokens
        self._eos_ids = tuple(eos_ids)
        self._spelling = spelling
        self._numbers = count()
        self._sequences: dict[int, _Sequence] = {}
        self._aborted: list[int] = []

    def check(self, item: GenerationItem, prompt_tokens: int) -> None:
        """See `Core`."""
        check_item(item, self._eos_ids)
        if prompt_tokens >= self._context_tokens:  # own forwards can look at a prompt alone
            raise ContextLengthExceeded(
                f"the prompt has {prompt_tokens} tokens, and vLLM needs room for one more within "
                f"the context of {self._context_tokens}",
                param=item.prompt.param,
            )

    def step(self, quanta: Sequence[Quantum[Slot]]) -> Sequence[Advance]:
        """See `Core`; what the quanta say of units is up to vLLM."""
        slots = [quantum.slot for quantum in quanta]
        for slot in slots:
            _reserve(slot)
        fresh = [self._begin(slot) for slot in slots if id(slot) not in self._sequences]
        if not all(each.over for each in self._sequences.values()):
            aborted, self._aborted = self._aborted, []
            reply = self._process.step({"abort": aborted, "add": fresh})
            numbered = {each.number: each for each in self._sequences.values()}
            for news in reply["news"]:
                if (known := numbered.get(news["number"])) is not None:
                    known.learn(news)
        return [_advance(slot, self._sequences[id(slot)]) for slot in slots]

    def drop(self, slot: Slot) -> None:
        """See `Core`; vLLM hears of it with the next step, before it computes."""
        sequence = self._sequences.pop(id(slot), None)
        if sequence is not None and not sequence.over:
            self._aborted.append(sequence.number)

    def tallies(self) -> Mapping[str, int]:
        """See `Core`: there are no drafts."""
        return {"draft_tokens": 0, "accepted_draft_tokens": 0}

    @property
    def lost(self) -> bool:
        """See `Core`."""
        return self._process.lost

    def close(self) -> None:
        """See `Core`."""
        self._process.close()

    def _begin(self, slot: Slot) -> Request:
        sequence = _Sequence(next(self._numbers))
        self._sequences[id(slot)] = sequence
        prepared = slot.prepared
        item = prepared.item
        return {
            "number": sequence.number,
            "token_ids": prepared.token_ids,
            "salt": None if prepared.names is None else prepared.names.root.hex(),
            "sampled": sampled_of(prepared, self._eos_ids),
            "logit_bias": list(item.sampling.logit_bias.items()),
            "end_ids": [*self._eos_ids, *item.stop_ids],
            "bad_words": words_of(item.rules, self._spelling),
        }


def _reserve(slot: Slot) -> None:
    """Hold what the loop has reserved: the first phase and a block, then as it grows."""
    extent = slot.prompt_tokens + slot.prepared.max_output_tokens
    ahead = slot.missing + slot.table.block_tokens if slot.computed == 0 else slot.computed + 1
    slot.table.reserve(min(ahead, extent))


def _advance(slot: Slot, sequence: _Sequence) -> Advance:
    """Take what a slot may be told now."""
    if slot.computed == 0:
        held = min(sequence.computed, slot.missing)
        slot.skip_to(held if slot.preempted else sequence.cached)
    room = slot.table.tokens - (len(slot.token_ids) - 1)
    drawn, sequence.drawn = sequence.drawn[:room], sequence.drawn[room:]
    end = min(sequence.computed, slot.prompt_tokens)
    if slot.output_tokens or drawn:
        end = len(slot.token_ids) - bool(slot.output_tokens)
    elif slot.scored:
        end = 0  # the scores come with the first token
    error = sequence.error
    if sequence.over and not drawn and error is None:
        error = EngineFailed("vLLM ended the sequence too early")
    portion = Portion(slot=slot, start=slot.computed, end=end)
    return Advance(portion=portion, scores=sequence.scores, drawn=drawn, error=error)


def _drawn(likely: Sequence[Likely]) -> list[Drawn]:
    return [
        Drawn(token_id=row[0][0], logprob=row[0][1], top=tuple((at, each) for at, each in row[1:]))
        for row in likely
    ]
