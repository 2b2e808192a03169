"""Decoding in fixed shapes against the forward that takes any, on the CPU.

What records is a stand-in: it computes again what a graph would replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from headpond.errors import BundleError
from headpond_workloads.generation.engine import torch_model
from headpond_workloads.generation.engine.attention import NAME
from headpond_workloads.generation.engine.cuda_graphs import Compute
from headpond_workloads.generation.engine.flex_attention import FlexAttention
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.kv_cache import KvCache
from headpond_workloads.generation.engine.runner import ModelRunner
from headpond_workloads.generation.engine.sdpa_attention import SdpaAttention
from headpond_workloads.generation.engine.static_decode import StaticDecode, doublings
from headpond_workloads.generation.engine.transformers_reading import reading_of
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling
from workloads.generation.conftest import runner_of, train_tokenizer

if TYPE_CHECKING:
    from workloads.generation.conftest import Drive, Tiny

BLOCKS = 60
PROMPTS = [[1 + (at * 7 + which * 31) % 390 for at in range(9 + 5 * which)] for which in range(5)]


class Repeater:
    """Records by keeping what computes, and counts."""

    def __init__(self) -> None:
        self.recorded = 0
        self.repeated = 0

    def record(self, compute: Compute) -> Compute:
        self.recorded += 1
        compute()
        return partial(self._repeat, compute)

    def _repeat(self, compute: Compute) -> None:
        self.repeated += 1
        compute()


def logits_of(runner: ModelRunner, spans: Sequence[Span]) -> Tensor:
    return torch.from_numpy(runner.forward(spans).values())


class World:
    """Sequences that are computed with fixed shapes, and with any."""

    def __init__(self, model: PreTrainedModel, *, block_tokens: int = 4, max_rows: int = 6) -> None:
        model = deepcopy(model)
        model.set_attn_implementation(NAME)
        shape = reading_of(model, train_tokenizer()).kv_shape(block_tokens)
        self.recorder = Repeater()
        self.caches = [KvCache(shape, BLOCKS, torch.device("cpu")) for _ in range(2)]
        attention, other = (SdpaAttention(cache) for cache in self.caches)
        decode = StaticDecode(
            model, self.caches[0], attention, self.recorder, max_rows=max_rows, max_blocks=40
        )
        self.fixed = ModelRunner(model, self.caches[0], attention, decode)
        self.free = ModelRunner(model, self.caches[1], other)
        self.token_ids = [list(prompt) for prompt in PROMPTS]
        self.tables: list[list[int]] = [[] for _ in PROMPTS]
        self.unused = list(range(BLOCKS - 1, -1, -1))
        self.block_tokens = block_tokens

    def span(self, at: int, start: int) -> Span:
        """Take the sequence from a position on to its end; blocks are taken as they come."""
        token_ids, table = self.token_ids[at], self.tables[at]
        while len(table) * self.block_tokens < len(token_ids):
            table.append(self.unused.pop())
        return Span(token_ids=token_ids[start:], start=start, blocks=table, logits=1)

    def step(self, spans: Sequence[Span]) -> Tensor:
        """Compute in both ways; return the logits of the first, which must be the other's."""
        found, expected = logits_of(self.fixed, spans), logits_of(self.free, spans)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
        return found

    def prefill(self) -> None:
        logits = self.step([self.span(at, 0) for at in range(len(PROMPTS))])
        self.take(range(len(PROMPTS)), logits)

    def decode(self, *which: int) -> None:
        self.take(which, self.step([self.span(at, len(self.token_ids[at]) - 1) for at in which]))

    def take(self, which: Sequence[int], logits: Tensor) -> None:
        for at, row in zip(which, logits, strict=True):
            self.token_ids[at].append(int(row.argmax()))


BATCHES = [(0,), (1, 2), (0, 1, 2, 3, 4), (4, 2, 0), (3,), (0, 1, 2, 3), (2, 4)]


def test_padded_steps_compute_what_others_do(any_tiny: Tiny) -> None:
    world = World(any_tiny.reference)
    world.prefill()
    for batch in BATCHES * 2:
        world.decode(*batch)
    for prompt, token_ids in zip(PROMPTS, world.token_ids, strict=True):
        assert token_ids[len(prompt) :] == any_tiny.greedy(prompt, len(token_ids) - len(prompt))


def test_each_shape_is_recorded_once_and_repeated(tiny: Tiny) -> None:
    world = World(tiny.reference)
    assert world.recorder.recorded == 4 * 2  # 1, 2, 4, 6 rows with 32, 40 blocks
    world.prefill()
    assert world.recorder.repeated == 0
    for count, batch in enumerate(BATCHES, start=1):
        world.decode(*batch)
        assert world.recorder.repeated == count
    assert world.recorder.recorded == 4 * 2


def test_a_sequence_may_grow_beyond_the_narrower_tables(tiny: Tiny) -> None:
    world = World(tiny.reference)
    world.token_ids[0] = [1 + at % 390 for at in range(126)]
    world.prefill()
    for _ in range(4):
        world.decode(0, 3)
    assert len(world.tables[0]) == 33
    assert world.recorder.repeated == 4


def test_steps_that_are_not_only_decodes_are_computed_as_ever(tiny: Tiny) -> None:
    world = World(tiny.reference, max_rows=2)
    world.prefill()
    world.decode(0, 1, 2)  # more than the most
    chunk = Span(token_ids=[5, 6], start=0, blocks=[world.unused.pop()], logits=1)
    last = world.span(0, len(world.token_ids[0]) - 1)
    world.step([last, chunk])
    silent = Span(token_ids=[7], start=2, blocks=chunk.blocks)
    assert world.step([silent]).shape == (0, 400)
    assert world.recorder.repeated == 0
    world.decode(0, 1)
    assert world.recorder.repeated == 1


def test_rows_that_pad_touch_nothing_but_scratch(tiny: Tiny) -> None:
    world = World(tiny.reference)
    world.prefill()
    cache = world.caches[0]
    before = [torch.stack(cache.stored(layer)).clone() for layer in range(2)]
    world.decode(0, 1, 2, 3, 4)
    written = {
        world.tables[at][-1] * 4 + (len(world.token_ids[at]) - 2) % 4 for at in range(len(PROMPTS))
    }
    for layer in range(2):
        changed = (torch.stack(cache.stored(layer)) != before[layer]).any(dim=(0, 1, 2, 4))
        at = set(changed.nonzero().flatten().tolist())
        assert at - {cache.scratch_block * 4} == written
    padding = slice(cache.padding_block * 4, cache.padding_block * 4 + 4)
    assert not cache.stored(0)[0][0, :, padding].any()


def test_a_poisoned_sequence_and_poisoned_padding_harm_nobody(tiny: Tiny) -> None:
    poisoned = deepcopy(tiny.reference)
    poisoned.get_input_embeddings().weight.data[0] = float("nan")  # type: ignore[operator]
    world = World(poisoned)
    world.token_ids[0][0] = 0  # as rows that pad have; in block 0
    world.prefill()
    for batch in BATCHES:
        world.decode(*batch)
    cache = world.caches[0]
    assert cache.stored(0)[0][0, :, cache.scratch_block * 4].isnan().all()
    for prompt, token_ids in zip(PROMPTS[1:], world.token_ids[1:], strict=True):
        assert token_ids[len(prompt) :] == tiny.greedy(prompt, len(token_ids) - len(prompt))


def test_logits_stay_when_the_next_step_is_computed(tiny: Tiny) -> None:
    world = World(tiny.reference)
    world.prefill()
    spans = [world.span(at, len(world.token_ids[at]) - 1) for at in (0, 1)]
    first = logits_of(world.fixed, spans[:1])
    kept = first.clone()
    second = logits_of(world.fixed, spans[1:])
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)


def test_sizes_double_up_to_the_most() -> None:
    assert doublings(1, 16) == (1, 2, 4, 8, 16)
    assert doublings(1, 12) == (1, 2, 4, 8, 12)
    assert doublings(1, 1) == (1,)
    assert doublings(32, 20) == (20,)


@pytest.fixture
def repeater(monkeypatch: pytest.MonkeyPatch) -> Repeater:
    """Stands in for the GPU's recorder wherever an engine is assembled."""
    repeater = Repeater()
    monkeypatch.setattr(torch_model, "recorder_of", lambda *_: repeater)
    return repeater


def items(count: int) -> list[GenerationItem]:
    return [
        GenerationItem(
            prompt=Prompt(token_ids=tuple(prompt)),
            max_output_tokens=count,
            sampling=Sampling(temperature=0.0),
        )
        for prompt in PROMPTS
    ]


def test_an_engine_decodes_with_it(any_tiny: Tiny, drive: Drive, repeater: Repeater) -> None:
    engine = any_tiny.engine(kernels="torch")
    assert repeater.repeated == 1  # the probe's last token
    runs = drive(engine, items(12), chunk=7, stagger=2)
    assert [run.output_ids for run in runs] == [any_tiny.greedy(each, 12) for each in PROMPTS]
    assert repeater.repeated > 12


def test_a_wrong_recording_is_refused_before_it_serves(
    tiny: Tiny, repeater: Repeater, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(compute: Compute) -> Compute:
        compute()
        return lambda: None

    monkeypatch.setattr(repeater, "record", keep)
    with pytest.raises(BundleError, match="changes its logits"):
        tiny.engine(kernels="torch")


@pytest.mark.timeout(300)  # kernels may have to be compiled first
def test_flex_decodes_with_it(tiny: Tiny, drive: Drive, repeater: Repeater) -> None:
    """One engine, of two blocks as the probe has, so that few kernels are compiled."""
    engine = tiny.engine(attention="flex", blocks=2)
    runner = runner_of(engine)
    assert isinstance(runner, ModelRunner)
    assert isinstance(runner._attention, FlexAttention)
    (run,) = drive(engine, items(5)[:1])
    assert run.output_ids == tiny.greedy(PROMPTS[0], 5)
    assert repeater.repeated == 1 + 4
