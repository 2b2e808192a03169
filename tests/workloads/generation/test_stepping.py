"""The engine over a model that only looks at which tokens its cache holds for a sequence.

Whatever is shared, evicted, computed again, guessed or fails on the way: the blocks of a
sequence hold its own tokens, and every token is the one that the model gives after these.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headpond.engine import Progress, Quantum
from headpond_workloads.generation.engine.block_manager import BlockManager
from headpond_workloads.generation.engine.blocks import BlockPool, BlocksExhausted
from headpond_workloads.generation.engine.conversation import Conversation, Ways
from headpond_workloads.generation.engine.draft_model import DraftModel
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.forward import CacheMemory, Forward, Span
from headpond_workloads.generation.engine.forward_core import ForwardCore
from headpond_workloads.generation.engine.grammar import Grammars
from headpond_workloads.generation.engine.limits import Limits
from headpond_workloads.generation.engine.prefix import PrefixCache
from headpond_workloads.generation.engine.sampler import Draw, SamplerState, sample
from headpond_workloads.generation.engine.sequence import Slot, Status
from headpond_workloads.generation.engine.speculation import PromptLookup, Speculation
from headpond_workloads.generation.engine.tokenizer import Tokenizer
from headpond_workloads.generation.engine.torch_logits import TorchLogits
from headpond_workloads.generation.engine.transformers_reading import tokenizer_reading_of
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling, TextDelta
from workloads.generation.conftest import train_tokenizer

VOCAB = 8
BLOCK = 4
BLOCKS = 12
BLANK = (-1, 0)


def hashed(history: Sequence[int]) -> Tensor:
    """Logits that depend on the last two tokens, so that outputs repeat what came before."""
    seed = [1 + token_id for token_id in history[-2:]]
    logits = np.random.default_rng(seed).standard_normal(VOCAB)
    return torch.tensor(4.0 * logits, dtype=torch.float32)


class Memory:
    """A cache that holds each token, and what it was computed after."""

    block_tokens = BLOCK

    def __init__(self) -> None:
        self.held: list[tuple[int, int]] = [BLANK] * (BLOCKS * BLOCK)

    def clear(self, blocks: Sequence[int]) -> None:
        for block, offset in product(blocks, range(BLOCK)):
            self.held[block * BLOCK + offset] = BLANK

    def write(self, blocks: Sequence[int], at: int, token_id: int) -> None:
        before = self.read(blocks, at - 1)[1] if at else 0
        self.held[blocks[at // BLOCK] * BLOCK + at % BLOCK] = (token_id, hash((before, token_id)))

    def read(self, blocks: Sequence[int], at: int) -> tuple[int, int]:
        return self.held[blocks[at // BLOCK] * BLOCK + at % BLOCK]


class Hash:
    """A model that reads its context out of the blocks.

    `truth` says what the sequence of a block table is; without it, as a draft model, it may
    find something else there, and is often wrong.
    """

    def __init__(self, memory: Memory, *, exact: bool = True) -> None:
        self._memory = memory
        self._exact = exact
        self.truth: dict[int, list[int]] = {}
        self.fails = False
        self.rows = 0

    def forward(self, spans: Sequence[Span]) -> TorchLogits:
        if self.fails:
            raise RuntimeError("out of memory")
        for span in spans:
            assert 0 <= span.logits <= len(span.token_ids)
            for at, token_id in enumerate(span.token_ids, start=span.start):
                self._memory.write(span.blocks, at, token_id)
                self.rows += 1
        rows = [
            self._row(span, end)
            for span in spans
            for end in range(span.end - span.logits + 1, span.end + 1)
        ]
        return TorchLogits(torch.stack(rows) if rows else torch.empty(0, VOCAB))

    def _row(self, span: Span, end: int) -> Tensor:
        held = [self._memory.read(span.blocks, at) for at in range(end)]
        history = [token_id for token_id, _ in held]
        if not self._exact:
            logits = hashed(history)
            return logits.flip(0) if sum(history) % 3 == 0 else logits
        known = self.truth[id(span.blocks)][: span.start]
        context = 0
        for token_id, found in zip([*known, *span.token_ids], held, strict=False):
            context = hash((context, token_id))
            assert found == (token_id, context)
        return hashed(history)


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer(
        tokenizer_reading_of(train_tokenizer()), vocab_tokens=VOCAB, chat_template=None
    )


@cache
def grammars() -> Grammars:
    return Grammars(tokenizer_reading_of(train_tokenizer()), VOCAB, frozenset({0}))


def make(method: str, *, prefix: bool) -> tuple[GenerationEngine, Hash]:
    pool, memory = BlockPool(BLOCKS), Memory()
    runner = Hash(memory)
    caches: list[CacheMemory] = [memory]
    speculation = None
    if method == "lookup":
        speculation = Speculation(PromptLookup(3), tokens=3, max_rows=9)
    elif method == "draft":
        read = Memory()
        drafter = DraftModel(Hash(read, exact=False), read, blocks=BLOCKS, context_tokens=40)
        caches.append(drafter)
        speculation = Speculation(drafter, tokens=3, max_rows=9)
    blocks = BlockManager(pool, caches, PrefixCache(pool, BLOCK, ("x",)) if prefix else None)
    engine = GenerationEngine(
        tokenizer=tokenizer(),
        conversation=Conversation(Ways(), grammars()),
        core=ForwardCore(Forward(runner=runner, cache=memory), blocks, speculation),
        blocks=blocks,
        limits=Limits(context_tokens=BLOCKS * BLOCK, vocab_tokens=VOCAB),
        eos_ids=frozenset({0}),
        symbols={},
    )
    return engine, runner


def expected(item: GenerationItem) -> list[int]:
    token_ids = list(item.prompt.token_ids or ())
    start = len(token_ids)
    state = SamplerState(item.sampling, token_ids)
    while len(token_ids) - start < (item.max_output_tokens or 0):
        draw = Draw(state=state, position=len(token_ids) - start, logprobs=None)
        (drawn,) = sample(TorchLogits(hashed(token_ids).unsqueeze(0)), [draw])
        assert drawn.token_id is not None
        token_ids.append(drawn.token_id)
        state.remember(drawn.token_id)
        if drawn.token_id == 0 and not item.ignore_eos:
            break
    return token_ids[start:]


SAMPLINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=0.7, seed=1),
    Sampling(temperature=0.7, seed=2, frequency_penalty=0.5),
    Sampling(temperature=0.5, seed=3, top_p=0.8),
]
# Prompts are cut from two texts, so that many have a beginning in common; the texts have
# everything but their beginning in common.
TEXTS = [[1 + (at * at) % 7 if at > 1 else 1 + which for at in range(30)] for which in range(2)]
ITEMS = st.builds(
    lambda which, length, count, sampling, scored: GenerationItem(
        prompt=Prompt(token_ids=tuple(TEXTS[which][:length])),
        max_output_tokens=count,
        sampling=SAMPLINGS[sampling],
        prompt_logprobs=0 if scored else None,
    ),
    st.integers(0, 1),
    st.integers(1, 30),
    st.integers(1, 16),
    st.integers(0, 3),
    st.sampled_from([False, False, False, True]),
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), ITEMS),
        st.tuples(st.just("start"), ITEMS),
        st.tuples(st.just("step"), st.integers(1, 20)),
        st.tuples(st.just("step"), st.integers(1, 20)),
        st.tuples(st.just("step"), st.integers(1, 20)),
        st.tuples(st.just("preempt"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("fail"), st.integers(1, 20)),
    ),
    min_size=20,
    max_size=60,
)


class World:
    """Slots in progress, and what came out of them."""

    def __init__(self, engine: GenerationEngine, runner: Hash) -> None:
        self.engine, self.runner = engine, runner
        self.live: list[tuple[Slot, GenerationItem, list[TextDelta]]] = []
        self.tenants = 0
        self.finished = 0

    def start(self, item: GenerationItem) -> None:
        if len(self.live) < 4:
            self.tenants += 1
            plan = self.engine.plan(item, f"tenant {self.tenants % 2}")
            self.live.append((self.engine.start(plan), item, []))

    def step(self, units: int) -> None:
        if not self.live:
            return
        try:
            results = self.advance(units)
        except BlocksExhausted:
            for slot, _, _ in self.live[1:]:
                self.engine.preempt(slot)
            results = self.advance(units, 1)
        for (slot, _, deltas), progress in zip(self.live, results, strict=False):
            self.take(slot, deltas, progress)
        self.live = [each for each in self.live if each[0].status is not Status.FINISHED]

    def advance(self, units: int, count: int = 4) -> Sequence[Progress[TextDelta]]:
        slots = [slot for slot, _, _ in self.live[:count]]
        self.runner.truth = {id(slot.table.blocks): slot.token_ids for slot in slots}
        return self.engine.step([Quantum(slot=slot, units=units) for slot in slots])

    def take(self, slot: Slot, deltas: list[TextDelta], progress: Progress[TextDelta]) -> None:
        assert progress.error is None
        assert progress.units >= 1
        deltas += progress.outputs
        if progress.finished is None:
            return
        self.finished += 1
        item = slot.prepared.item
        output = [each for delta in deltas if not delta.is_prompt for each in delta.token_ids]
        assert output == expected(item)
        if item.prompt_logprobs is not None:
            back = [each for delta in deltas if delta.is_prompt for each in delta.token_ids]
            assert tuple(back) == item.prompt.token_ids
        self.engine.release(slot)

    def fail(self, units: int) -> None:
        self.runner.fails = True
        try:
            self.advance(units)
        except (RuntimeError, BlocksExhausted):
            pass
        finally:
            self.runner.fails = False

    def preempt(self, which: int) -> None:
        if self.live:
            slot = self.live[which % len(self.live)][0]
            assert self.engine.preempt(slot) <= len(slot.token_ids)

    def cancel(self, which: int) -> None:
        if self.live:
            slot, _, _ = self.live.pop(which % len(self.live))
            self.engine.release(slot)

    def check(self) -> None:
        tables = [slot.table.blocks for slot, _, _ in self.live]
        assert (
            len({block for table in tables for block in table}) == BLOCKS - self.engine.free_blocks
        )


def explore(world: World, actions: list[tuple[str, object]]) -> None:
    for name, argument in actions:
        getattr(world, name)(argument)
        world.check()
    for _ in range(300):
        if not world.live:
            break
        world.step(5)
        world.check()
    assert not world.live
    assert world.engine.free_blocks == BLOCKS


@settings(max_examples=200, deadline=None)
@given(ACTIONS, st.sampled_from(["none", "lookup", "draft"]), st.booleans())
def test_every_token_is_what_the_model_says_after_all_before_it(
    actions: list[tuple[str, object]], method: str, prefix: bool
) -> None:
    explore(World(*make(method, prefix=prefix)), actions)


def test_much_of_it_is_shared_and_guessed() -> None:
    """What the property above is about does happen."""
    items = [
        GenerationItem(
            prompt=Prompt(token_ids=tuple(TEXTS[at % 2][: 10 + at])),
            max_output_tokens=12,
            sampling=SAMPLINGS[at % 2],
            ignore_eos=True,
        )
        for at in range(12)
    ]
    for method in ("lookup", "draft"):
        engine, runner = make(method, prefix=True)
        world = World(engine, runner)
        for item in items:
            world.start(item)
            while world.live:
                world.step(7)
        tallies = engine.tallies()
        assert tallies["prefix_cache_hits"] > 60
        assert 10 < tallies["accepted_draft_tokens"] < tallies["draft_tokens"]
        assert runner.rows < sum(len(each.prompt.token_ids or ()) + 24 for each in items)
