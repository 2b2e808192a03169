from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.engine import Quantum
from headpond.units import Work
from headpond_workloads.generation.engine.blocks import BlockPool, BlocksExhausted, BlockTable
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.prefix import Chain, PrefixCache
from headpond_workloads.generation.items import ChosenToken, GenerationItem, Prompt, Sampling
from workloads.generation.conftest import runner_of

if TYPE_CHECKING:
    from workloads.generation.conftest import Drive, Run, Tiny

SHARED = tuple((at * 11 + 3) % 390 for at in range(40))
SAMPLED = Sampling(seed=3, temperature=0.9, top_p=0.95)


def item(
    token_ids: tuple[int, ...], count: int = 12, sampling: Sampling | None = None, **more: object
) -> GenerationItem:
    return GenerationItem(
        prompt=Prompt(token_ids=token_ids),
        max_output_tokens=count,
        sampling=sampling or Sampling(temperature=0.0),
        **more,  # type: ignore[arg-type]
    )


def cached(run: Run) -> int:
    usage = run.deltas[-1].usage
    assert usage is not None
    return usage.cached_tokens


def logprobs(run: Run) -> list[ChosenToken]:
    return [entry for delta in run.deltas for entry in delta.logprobs]


def test_a_prompt_that_was_there_before_gives_the_same_to_the_bit(
    any_tiny: Tiny, drive: Drive
) -> None:
    engine = any_tiny.engine()
    prompts = [item((*SHARED, at), logprobs=3, sampling=SAMPLED) for at in (1, 2)]
    (cold, other) = (drive(engine, [each])[0] for each in prompts)
    warm = drive(engine, [*prompts, prompts[0]], chunk=5)
    assert [cached(run) for run in (cold, other, *warm)] == [0, 32, 32, 32, 32]
    for run, like in zip(warm, (cold, other, cold), strict=True):
        assert run.output_ids == like.output_ids
        if any_tiny.reference.config.hidden_size >= 64:  # the native forward
            assert logprobs(run) == logprobs(like)
    assert engine.free_blocks == 64


def test_what_was_cached_is_no_work(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine()
    for expected in (
        Work(input_tokens=40, output_tokens=12),
        Work(input_tokens=8, output_tokens=12),
    ):
        (run,) = drive(engine, [item(SHARED)])
        assert run.last is not None
        assert run.last.finished == expected
    assert engine.tallies()["prefix_cache_queries"] == 80
    assert engine.tallies()["prefix_cache_hits"] == 32


def test_the_last_token_of_a_prompt_is_computed_even_when_its_block_is_held(
    tiny: Tiny, drive: Drive
) -> None:
    engine = tiny.engine()
    runs = [drive(engine, [item(SHARED[:32])])[0] for _ in range(2)]
    assert [cached(run) for run in runs] == [0, 16]
    assert runs[1].output_ids == tiny.greedy(SHARED[:32], 12)


def test_prompts_that_come_together_are_computed_once(tiny: Tiny) -> None:
    engine = tiny.engine()
    slots = [engine.start(engine.plan(item((*SHARED, at)), "tenant")) for at in range(3)]
    engine.step([Quantum(slot=slots[0], units=41)])
    progress = engine.step(
        [Quantum(slot=slots[0], units=1), *(Quantum(slot=slot, units=41) for slot in slots[1:])]
    )
    # Each goes on by all of its prompt, of which nine tokens were left to compute.
    assert [(each.units, each.skipped) for each in progress] == [(1, 0), (41, 32), (41, 32)]
    assert [slot.cached_tokens for slot in slots] == [0, 32, 32]
    assert engine.free_blocks == 64 - 2 - 3
    for slot, each in zip(slots[1:], progress[1:], strict=True):
        assert each.outputs[0].token_ids == tuple(tiny.greedy(slot.prepared.token_ids, 1))


def test_what_another_computes_in_the_same_step_is_waited_for(tiny: Tiny) -> None:
    engine = tiny.engine()
    slots = [engine.start(engine.plan(item((*SHARED, at)), "tenant")) for at in range(3)]
    other = engine.start(engine.plan(item(SHARED), "other"))
    quanta = [Quantum(slot=slot, units=40) for slot in (*slots, other)]
    progress = engine.step(quanta)
    assert [(each.units, each.skipped) for each in progress] == [(40, 0), (1, 0), (1, 0), (40, 0)]
    progress = engine.step(quanta[:3])
    assert [(each.units, each.skipped) for each in progress] == [(1, 0), (40, 31), (40, 31)]
    for slot, each in zip(slots, progress, strict=True):
        assert each.outputs[0].token_ids == tuple(tiny.greedy(slot.prepared.token_ids, 1))


def test_nobody_waits_for_a_block_that_is_not_filled_in_the_step(tiny: Tiny) -> None:
    engine = tiny.engine()
    slots = [engine.start(engine.plan(item((*SHARED, at)), "tenant")) for at in range(2)]
    engine.step([Quantum(slot=slots[0], units=16)])
    progress = engine.step([Quantum(slot=slot, units=8) for slot in slots])
    assert [(each.units, each.skipped) for each in progress] == [(8, 0), (24, 16)]


def test_the_same_output_computed_twice_is_kept_once(tiny: Tiny) -> None:
    engine = tiny.engine()
    slots = [engine.start(engine.plan(item(SHARED, 30), "tenant")) for _ in range(2)]
    engine.step([Quantum(slot=slots[0], units=40)])
    engine.step([Quantum(slot=slots[1], units=40)])
    while slots[0].output_tokens < 30:
        engine.step([Quantum(slot=slot, units=1) for slot in slots if slot.output_tokens < 30])
    # 69 tokens are held of each: four blocks that are the same, and a part of one of its own.
    assert engine.free_blocks == 64 - 4 - 2
    for slot in slots:
        assert slot.token_ids[40:] == tiny.greedy(SHARED, 30)
        engine.release(slot)
    assert engine.free_blocks == 64


def test_a_conversation_finds_the_answer_it_goes_on_from(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine()
    (first,) = drive(engine, [item(SHARED, 30)])
    turns = (*SHARED, *first.output_ids, 5, 6, 7)
    (second,) = drive(engine, [item(turns)])
    # The last token of an answer is never computed, so 69 of its 70 tokens lie in blocks.
    assert cached(second) == 64
    assert second.output_ids == tiny.greedy(turns, 12)


def test_a_plan_says_what_is_held(engine: GenerationEngine, drive: Drive) -> None:
    def estimate(namespace: str = "tenant", **more: object) -> int:
        return engine.plan(item(SHARED, **more), namespace).shape["cached_tokens"]  # type: ignore[arg-type]

    assert estimate() == 0
    drive(engine, [item(SHARED)])
    assert estimate() == 32
    assert estimate("other") == 0
    assert estimate(prompt_logprobs=0) == 0


def test_tenants_share_nothing(tiny: Tiny) -> None:
    engine = tiny.engine()
    for tenant in ("one", "two"):
        slot = engine.start(engine.plan(item(SHARED), tenant))
        engine.step([Quantum(slot=slot, units=40)])
        assert slot.cached_tokens == 0
        engine.release(slot)


def test_without_the_cache_every_prompt_is_computed(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine(prefix_cache=False)
    runs = [drive(engine, [item(SHARED)])[0] for _ in range(2)]
    assert [cached(run) for run in runs] == [0, 0]
    assert engine.plan(item(SHARED), "tenant").shape["cached_tokens"] == 0
    assert runs[1].output_ids == tiny.greedy(SHARED, 12)


@pytest.mark.parametrize("chunk", [7, 64])
def test_eviction_under_pressure_changes_nothing(tiny: Tiny, drive: Drive, chunk: int) -> None:
    engine = tiny.engine(blocks=9)
    prompts = [tuple((which * 17 + at) % 390 for at in range(33 + which)) for which in range(6)]
    for _ in range(3):
        for prompt in prompts:
            (run, again) = drive(engine, [item(prompt), item(prompt[:20])], chunk=chunk)
            assert run.output_ids == tiny.greedy(prompt, 12)
            assert again.output_ids == tiny.greedy(prompt[:20], 12)
            assert engine.free_blocks == 9


def test_a_preempted_sequence_may_find_its_own_blocks(tiny: Tiny) -> None:
    engine = tiny.engine()
    slot = engine.start(engine.plan(item(SHARED, 20), "tenant"))
    engine.step([Quantum(slot=slot, units=40)])
    for _ in range(10):
        engine.step([Quantum(slot=slot, units=1)])
    assert engine.preempt(slot) == 50
    (again,) = engine.step([Quantum(slot=slot, units=1)])
    assert (again.units, again.outputs) == (49, ())
    (again,) = engine.step([Quantum(slot=slot, units=1)])
    assert (again.units, again.outputs) == (1, ())
    while slot.output_tokens < 20:
        engine.step([Quantum(slot=slot, units=1)])
    assert slot.token_ids[40:] == tiny.greedy(SHARED, 20)
    # What it computed itself is no saving.
    assert slot.cached_tokens == 0
    engine.release(slot)


def test_found_blocks_count_though_the_step_that_found_them_fails(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny.engine()
    first = engine.start(engine.plan(item(SHARED), "tenant"))
    engine.step([Quantum(slot=first, units=40)])
    slot = engine.start(engine.plan(item(SHARED), "tenant"))

    def fail(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(runner_of(engine), "forward", fail)
        with pytest.raises(RuntimeError):
            engine.step([Quantum(slot=slot, units=40)])
    (progress,) = engine.step([Quantum(slot=slot, units=40)])
    assert (progress.units, progress.skipped) == (40, 32)
    assert progress.outputs[0].token_ids == tuple(tiny.greedy(SHARED, 1))


def test_names_tell_apart_all_that_blocks_depend_on() -> None:
    pool = BlockPool(1)
    caches = [PrefixCache(pool, 2, scope) for scope in (("a",), ("b",), ("a", "b"))]
    chains = [cache.chain("t", None, [1, 2, 3, 4]) for cache in caches]
    chains.append(caches[0].chain("u", None, [1, 2, 3, 4]))
    chains.append(caches[0].chain("t", "lora", [1, 2, 3, 4]))
    chains.append(caches[0].chain("t", "", [1, 2, 3, 4]))
    chains.append(caches[0].chain("t", None, [0, 2, 3, 4]))
    names = [name for chain in chains for name in chain.names]
    assert len(set(names)) == len(names) == 14
    longer = caches[0].chain("t", None, [1, 2, 3, 4, 5])
    assert longer.names == chains[0].names


def test_the_end_of_a_prefix_is_evicted_before_its_beginning() -> None:
    pool = BlockPool(4)
    prefix = PrefixCache(pool, 1, ())
    tables = []
    for token_ids in ([1, 2, 3], [1, 2, 4]):
        table, chain = BlockTable(pool, 1), prefix.chain("", None, token_ids)
        table.reserve(prefix.adopt(chain, table, 0, 3) or 0)
        table.reserve(3)
        prefix.register(chain, table, token_ids, 3)
        tables.append(table)
    for table in tables:
        table.clear()
    found = []
    for _ in range(4):
        found.append(
            [prefix.cached_tokens(prefix.chain("", None, [1, 2, end]), 3) for end in (3, 4)]
        )
        pool.take(1)
    assert found == [[3, 3], [2, 3], [2, 2], [1, 1]]


TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=12)
ACTIONS = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), TOKENS)), max_size=60)


@settings(max_examples=300)
@given(ACTIONS)
def test_blocks_are_free_or_held_and_hold_what_their_names_say(
    actions: list[tuple[int, list[int] | None]],
) -> None:
    pool = BlockPool(7)
    prefix = PrefixCache(pool, 2, ("scope",))
    tables: list[tuple[BlockTable, Chain] | None] = [None] * 4
    contents: dict[int, list[int]] = {}
    for which, token_ids in actions:
        held = tables[which]
        if held is not None:
            held[0].clear()
            tables[which] = None
        if token_ids is None:
            continue
        table, chain = BlockTable(pool, 2), prefix.chain("", None, token_ids)
        tables[which] = table, chain
        found = prefix.adopt(chain, table, 0, len(token_ids) - 1)
        assert found < len(token_ids)
        for at, block in enumerate(table.blocks):
            assert contents[block] == token_ids[: 2 * at + 2]
        try:
            fresh = table.reserve(len(token_ids))
        except BlocksExhausted:
            assert -(-len(token_ids) // 2) - len(table.blocks) > pool.free
        else:
            full = len(token_ids) // 2
            for at in range(len(table.blocks) - len(fresh), full):
                contents[table.blocks[at]] = token_ids[: 2 * at + 2]
            prefix.register(chain, table, token_ids, len(token_ids))
        live = [each[0].blocks for each in tables if each is not None]
        distinct = {block for blocks in live for block in blocks}
        assert all(len(set(blocks)) == len(blocks) for blocks in live)
        assert len(distinct) == pool.count - pool.free
    for each in tables:
        if each is not None:
            each[0].clear()
    assert sorted(pool.take(7)) == list(range(7))
