"""The generation engine: plans items, advances slots, gives out text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headpond.engine import Json, Plan, Progress, Quantum
from headpond.errors import EngineFailed
from headpond.units import Work
from headpond_workloads.generation.engine.blocks import BlockPool, BlockTable
from headpond_workloads.generation.engine.fixtures import item_of_fixture
from headpond_workloads.generation.engine.kv_cache import KvCache
from headpond_workloads.generation.engine.limits import Limits
from headpond_workloads.generation.engine.runner import ModelRunner, Span
from headpond_workloads.generation.engine.sampler import Draw, Drawn, SamplerState, sample
from headpond_workloads.generation.engine.sequence import Prepared, Slot, Status
from headpond_workloads.generation.engine.text import TextStream
from headpond_workloads.generation.engine.tokenizer import Tokenizer
from headpond_workloads.generation.engine.vocabulary import Vocabulary
from headpond_workloads.generation.items import (
    ChosenToken,
    FinishReason,
    GenerationItem,
    TextDelta,
    TokenLogprob,
    TokenUsage,
)

_NO_ADAPTER = (None,)


class GenerationEngine:
    """Continuous generation over one model and one paged KV cache."""

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        runner: ModelRunner,
        cache: KvCache,
        pool: BlockPool,
        limits: Limits,
        eos_ids: frozenset[int],
        symbols: Mapping[str, int],
    ) -> None:
        """Put the parts together; `load` makes them."""
        self._tokenizer = tokenizer
        self._runner = runner
        self._cache = cache
        self._pool = pool
        self._limits = limits
        self._eos_ids = eos_ids
        self._symbols = symbols

    @property
    def symbols(self) -> Mapping[str, int]:
        """What the loaded model is, in the record's symbols."""
        return self._symbols

    @property
    def free_blocks(self) -> int:
        """KV blocks that no slot holds."""
        return self._pool.free

    def plan(self, item: GenerationItem, namespace: str) -> Plan[Prepared]:
        """Tokenize an item and check it against the model.

        Raises:
            InvalidRequest: The prompt or a setting is none the model can use.
            ContextLengthExceeded: It does not fit into the context; says both numbers.
        """
        token_ids = self._tokenizer.encode(item.prompt)
        max_output_tokens = self._limits.output_tokens(item, len(token_ids))
        self._limits.check_sampling(item.sampling)
        return Plan(
            shape={
                "prompt_tokens": len(token_ids),
                "max_output_tokens": max_output_tokens,
                "cached_tokens": 0,
            },
            prepared=Prepared(
                item=item, token_ids=tuple(token_ids), max_output_tokens=max_output_tokens
            ),
            key=_NO_ADAPTER,
        )

    def start(self, plan: Plan[Prepared]) -> Slot:
        """Return a slot that holds no block yet; steps take them as tokens come."""
        prepared = plan.prepared
        return Slot(
            prepared=prepared,
            token_ids=list(prepared.token_ids),
            table=BlockTable(self._pool, self._cache.block_tokens),
            sampler=SamplerState(prepared.item.sampling, prepared.token_ids),
            text=TextStream(prepared.item.stop),
        )

    def step(self, quanta: Sequence[Quantum[Slot]]) -> list[Progress[TextDelta]]:
        """Advance every slot in one forward.

        Raises:
            BlocksExhausted: The slots need more blocks than there are; none advanced.
        """
        spans = self._spans(quanta)
        logits = self._runner.forward(spans)
        drawing = [quantum.slot for quantum, span in zip(quanta, spans, strict=True) if span.logits]
        drawn = iter(sample(logits, [_draw(slot) for slot in drawing]))
        # Nothing below fails: up to here no slot has changed, from here on all of them do.
        return [
            self._advance(quantum.slot, len(span.token_ids), next(drawn) if span.logits else None)
            for quantum, span in zip(quanta, spans, strict=True)
        ]

    def preempt(self, slot: Slot) -> int:
        """Give the slot's blocks back and return how many tokens it has to compute again."""
        lost, slot.computed = slot.computed, 0
        slot.table.clear()
        return lost

    def release(self, slot: Slot) -> None:
        """Give the slot's blocks back for good."""
        slot.table.clear()
        slot.status = Status.FINISHED

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Generate greedily from a fixture's `messages`, `text` or `token_ids`.

        Raises:
            BundleError: The fixture is not one of these, or its `max_tokens` is no integer.
            InvalidRequest: The model can't do it.
            EngineFailed: The model computed NaN.
        """
        plan = self.plan(item_of_fixture(given), "")
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

    def _spans(self, quanta: Sequence[Quantum[Slot]]) -> list[Span]:
        """Reserve blocks for every quantum and describe what it computes."""
        fresh: list[int] = []
        spans: list[Span] = []
        for quantum in quanta:
            slot = quantum.slot
            end = slot.computed + slot.due(quantum.units)
            fresh += slot.table.reserve(end)
            spans.append(
                Span(
                    token_ids=slot.token_ids[slot.computed : end],
                    start=slot.computed,
                    blocks=slot.table.blocks,
                    logits=int(end == len(slot.token_ids)),
                )
            )
        self._cache.clear(fresh)
        return spans

    def _advance(self, slot: Slot, units: int, drawn: Drawn | None) -> Progress[TextDelta]:
        slot.computed += units
        if drawn is None:
            return Progress(units=units)
        if drawn.token_id is None:
            slot.status = Status.FINISHED
            return Progress(units=units, error=EngineFailed("the model's logits are not finite"))
        phase = "decode" if slot.status is Status.PREFILL else None
        slot.status = Status.DECODE
        delta = self._delta(slot, drawn, drawn.token_id)
        work = _work(slot) if delta.finish_reason is not None else None
        return Progress(outputs=(delta,), units=units, phase=phase, finished=work)

    def _delta(self, slot: Slot, drawn: Drawn, token_id: int) -> TextDelta:
        """Append a token to a slot and return what the caller sees of it."""
        slot.token_ids.append(token_id)
        slot.sampler.remember(token_id)
        vocabulary = self._tokenizer.vocabulary
        text = slot.text.push(vocabulary.raw(token_id))
        reason = self._finish_reason(slot, token_id)
        if reason is not None:
            text += slot.text.finish()
            slot.status = Status.FINISHED
        wanted = slot.prepared.item.logprobs is not None
        return TextDelta(
            text=text,
            token_ids=(token_id,),
            logprobs=(_chosen(drawn, token_id, vocabulary),) if wanted else (),
            finish_reason=reason,
            usage=_usage(slot) if reason is not None else None,
        )

    def _finish_reason(self, slot: Slot, token_id: int) -> FinishReason | None:
        ended = token_id in self._eos_ids and not slot.prepared.item.ignore_eos
        if ended or slot.text.stopped:
            return "stop"
        return "length" if slot.output_tokens >= slot.prepared.max_output_tokens else None


def _draw(slot: Slot) -> Draw:
    return Draw(
        state=slot.sampler, position=slot.output_tokens, logprobs=slot.prepared.item.logprobs
    )


def _usage(slot: Slot) -> TokenUsage:
    return TokenUsage(prompt_tokens=slot.prompt_tokens, completion_tokens=slot.output_tokens)


def _work(slot: Slot) -> Work:
    return Work(input_tokens=slot.prompt_tokens, output_tokens=slot.output_tokens)


def _chosen(drawn: Drawn, token_id: int, vocabulary: Vocabulary) -> ChosenToken:
    def entry(entry_id: int, logprob: float) -> TokenLogprob:
        return TokenLogprob(vocabulary.text(entry_id), entry_id, logprob, vocabulary.raw(entry_id))

    return ChosenToken(
        chosen=entry(token_id, drawn.logprob), top=tuple(entry(*pair) for pair in drawn.top)
    )
