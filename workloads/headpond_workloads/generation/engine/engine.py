"""The generation engine: plans items, advances slots, gives out text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headpond.engine import Immediate, Json, Plan, Progress, Quantum
from headpond.errors import EngineFailed
from headpond.units import Work
from headpond_workloads.generation.engine.block_manager import BlockManager
from headpond_workloads.generation.engine.conversation import Conversation
from headpond_workloads.generation.engine.core import Advance, Core
from headpond_workloads.generation.engine.fixtures import item_of_fixture
from headpond_workloads.generation.engine.limits import Limits
from headpond_workloads.generation.engine.output import OutputWriter
from headpond_workloads.generation.engine.sampler import SamplerState
from headpond_workloads.generation.engine.sequence import Prepared, Slot, Status
from headpond_workloads.generation.engine.text import TextStream
from headpond_workloads.generation.engine.token_rules import gate_of
from headpond_workloads.generation.engine.tokenizer import Tokenizer
from headpond_workloads.generation.items import (
    DetokenizeItem,
    GenerationItem,
    Prompt,
    TextDelta,
    TokenizeItem,
)

Item = GenerationItem | TokenizeItem | DetokenizeItem

_ANSWERED = Prepared(item=GenerationItem(prompt=Prompt()), token_ids=(), max_output_tokens=0)
"""In the plan of an item that planning has answered: it never starts."""


class GenerationEngine:
    """Continuous generation over one model and one paged KV cache."""

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        conversation: Conversation,
        core: Core,
        blocks: BlockManager,
        limits: Limits,
        eos_ids: frozenset[int],
        symbols: Mapping[str, int],
    ) -> None:
        """Put the parts together; `load` makes them.

        Args:
            tokenizer: Reads prompts.
            conversation: The model's ways of calling tools and of reasoning.
            core: Computes the model, over the blocks.
            blocks: The KV blocks; all are free.
            limits: What can be asked for.
            eos_ids: The tokens that end a sequence.
            symbols: What the model is, in the record's symbols.
        """
        self._tokenizer = tokenizer
        self._conversation = conversation
        self._core = core
        self._blocks = blocks
        self._limits = limits
        self._symbols = symbols
        self._eos_ids = eos_ids
        self._writer = OutputWriter(tokenizer.vocabulary, eos_ids)

    @property
    def symbols(self) -> Mapping[str, int]:
        """What the loaded model is, in the record's symbols."""
        return self._symbols

    @property
    def lost(self) -> bool:
        """Whether it has lost a process that it computes with; see `headpond.engine.is_lost`."""
        return self._core.lost

    def close(self) -> None:
        """End the processes that it computes with, if any; they end with this one, too."""
        self._core.close()

    @property
    def free_blocks(self) -> int:
        """KV blocks that no slot holds."""
        return self._blocks.free

    def tallies(self) -> Mapping[str, int]:
        """Return what was counted since the start; only ever grows."""
        return {
            "prefix_cache_queries": self._blocks.queried_tokens,
            "prefix_cache_hits": self._blocks.hit_tokens,
            **self._core.tallies(),
        }

    def plan(self, item: Item, namespace: str) -> Plan[Prepared]:
        """Tokenize an item and check it against the model; answer it when that is all.

        Raises:
            InvalidRequest: The prompt or a setting is none the model can use.
            ContextLengthExceeded: It does not fit into the context; says both numbers.
        """
        if not isinstance(item, GenerationItem):
            if isinstance(item, TokenizeItem):
                least_tokens = self._tokenizer.least_tokens(item.prompt)
                self._limits.check_length(least_tokens, item.prompt.param)
            tokens = self._tokenizer.tokens(item, self._limits.context_tokens)
            return Plan(shape={}, prepared=_ANSWERED, answer=Immediate(outputs=(tokens,)))
        return self._plan(item, namespace)

    def _plan(self, item: GenerationItem, namespace: str) -> Plan[Prepared]:
        adapter = self._limits.adapter(item.adapter)
        item, token_ids = self._read(item)
        max_output_tokens = self._limits.output_tokens(item, len(token_ids))
        self._limits.check_tokens(item, max_output_tokens)
        self._core.check(item, len(token_ids))
        grammar = self._conversation.matcher(item, self._tokenizer.ending(token_ids), namespace)
        names = self._blocks.names(namespace, item.adapter, token_ids, item.cache_salt)
        reusable = len(token_ids) - 1 if item.prompt_logprobs is None else 0
        return Plan(
            shape={
                "prompt_tokens": len(token_ids),
                "max_output_tokens": max_output_tokens,
                "cached_tokens": self._blocks.cached_tokens(names, reusable),
            },
            prepared=Prepared(
                item=item,
                token_ids=tuple(token_ids),
                max_output_tokens=max_output_tokens,
                names=names,
                adapter=adapter,
                matcher=gate_of(
                    item,
                    grammar,
                    encode=self._tokenizer.spelling,
                    vocab_tokens=self._limits.vocab_tokens,
                    eos_ids=self._eos_ids,
                ),
            ),
        )

    def _read(self, item: GenerationItem) -> tuple[GenerationItem, Sequence[int]]:
        """Return the tokens of an item's prompt, and the item; of a text cut short, with these."""
        prompt = self._conversation.prompt(item)
        if prompt.most_tokens is None:
            self._limits.check_length(self._tokenizer.least_tokens(prompt), prompt.param)
        token_ids = self._tokenizer.encode(prompt)
        kept = self._limits.kept_tokens(item, len(token_ids))
        if kept == len(token_ids):
            return item, token_ids
        token_ids = token_ids[-kept:]
        if prompt.text is None:
            return item, token_ids
        return replace(item, prompt=Prompt(token_ids=tuple(token_ids))), token_ids

    def start(self, plan: Plan[Prepared]) -> Slot:
        """Return a slot that holds no block yet; steps take them as tokens come."""
        prepared = plan.prepared
        return Slot(
            prepared=prepared,
            token_ids=list(prepared.token_ids),
            prompt_tokens=len(prepared.token_ids),
            table=self._blocks.table(),
            sampler=SamplerState(prepared.item.sampling, prepared.token_ids, prepared.matcher),
            text=TextStream(prepared.item.stop, include_stop=prepared.item.include_stop),
            reader=self._conversation.reader(
                prepared.item, self._tokenizer.ending(prepared.token_ids)
            ),
            names=None if prepared.names is None else prepared.names.copy(),
        )

    def step(self, quanta: Sequence[Quantum[Slot]]) -> list[Progress[TextDelta]]:
        """Advance every slot in one step of the core.

        Raises:
            BlocksExhausted: The slots need more blocks than there are; none advanced.
            WorkerLost: A process that it computes with is lost; see `lost`.
        """
        return [self._advance(each) for each in self._core.step(quanta)]

    def preempt(self, slot: Slot) -> int:
        """Give the slot's blocks back and return how many tokens it has to compute again."""
        lost = slot.told
        slot.rewind()
        return lost

    def release(self, slot: Slot) -> None:
        """Give the slot's blocks back for good."""
        slot.table.clear()
        slot.status = Status.FINISHED
        self._core.drop(slot)

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Generate greedily from a fixture's `messages`, `text` or `token_ids`.

        Raises:
            BundleError: The fixture is not one of these, or its `max_tokens` is no integer.
            InvalidRequest: The model can't do it.
            EngineFailed: The model computed NaN.
        """
        plan = self._plan(item_of_fixture(given), "")
        slot = self.start(plan)
        text = ""
        try:
            while slot.status is not Status.FINISHED:
                units = max(1, slot.prompt_tokens - slot.computed)
                (progress,) = self.step([Quantum(slot=slot, units=units)])
                if progress.error is not None:
                    raise progress.error
                text += "".join(delta.text for delta in progress.outputs)
        finally:
            self.release(slot)
        prompt = slot.prompt_tokens
        return {
            "input_ids": list(slot.token_ids[:prompt]),
            "output_ids": list(slot.token_ids[prompt:]),
            "text": text,
        }

    def _advance(self, advance: Advance) -> Progress[TextDelta]:
        portion, scores, drawn = advance.portion, advance.scores, advance.drawn
        slot, error = portion.slot, advance.error
        slot.computed = portion.end
        if any(each.token_id is None for each in (*scores, *drawn)):
            error = slot.sampler.refusal or EngineFailed("the model's logits are not finite")
        if error is not None:
            slot.status = Status.FINISHED
            slot.table.forget()
            units, skipped = slot.tell()
            return Progress(units=units, skipped=skipped, error=error)
        outputs: list[TextDelta] = []
        if slot.returned < slot.prompt_tokens and slot.prepared.returns_prompt:
            outputs += self._writer.prompt(portion, scores)
        phase, work = None, None
        if drawn:
            if slot.status is Status.PREFILL:
                slot.status, phase = Status.DECODE, "decode"
                self._blocks.begun(slot)
            outputs.append(self._writer.generated(slot, drawn))
            slot.computed = max(slot.computed, len(slot.token_ids) - 1)
            work = _work(slot) if slot.status is Status.FINISHED else None
        self._blocks.computed(slot)
        units, skipped = slot.tell()
        return Progress(
            outputs=tuple(outputs), units=units, skipped=skipped, phase=phase, finished=work
        )


def _work(slot: Slot) -> Work:
    uncached = max(1, slot.prompt_tokens - slot.cached_tokens)
    return Work(input_tokens=uncached, output_tokens=slot.output_tokens)
