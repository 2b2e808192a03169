from __future__ import annotations

from collections.abc import Sequence

import pytest

from headpond.engine import Quantum
from headpond_workloads.generation.engine.block_manager import BlockManager
from headpond_workloads.generation.engine.blocks import BlockPool, BlocksExhausted
from headpond_workloads.generation.engine.prefix import PrefixCache
from headpond_workloads.generation.engine.sampler import SamplerState
from headpond_workloads.generation.engine.sequence import Prepared, Slot
from headpond_workloads.generation.engine.text import TextStream
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling


class Memory:
    block_tokens = 4

    def __init__(self) -> None:
        self.cleared: list[int] = []

    def clear(self, blocks: Sequence[int]) -> None:
        self.cleared += blocks


def make(blocks: int) -> tuple[BlockManager, Memory, Memory]:
    pool, target, draft = BlockPool(blocks), Memory(), Memory()
    return BlockManager(pool, (target, draft), PrefixCache(pool, 4, ())), target, draft


def start(manager: BlockManager, token_ids: Sequence[int]) -> Slot:
    names = manager.names("tenant", None, token_ids)
    item = GenerationItem(prompt=Prompt(token_ids=tuple(token_ids)))
    prepared = Prepared(item=item, token_ids=tuple(token_ids), max_output_tokens=9, names=names)
    return Slot(
        prepared=prepared,
        token_ids=list(token_ids),
        prompt_tokens=len(token_ids),
        table=manager.table(),
        sampler=SamplerState(Sampling(), token_ids),
        text=TextStream(),
        reader=None,
        names=names,
    )


def test_new_blocks_are_cleared_in_every_memory_and_found_ones_are_not() -> None:
    manager, target, draft = make(8)
    first, second = start(manager, range(9)), start(manager, range(10))
    (portion,) = manager.portions([Quantum(slot=first, units=9)])
    assert (portion.start, portion.end) == (0, 9)
    assert target.cleared == draft.cleared == first.table.blocks
    first.computed = 9
    manager.computed(first)
    (portion,) = manager.portions([Quantum(slot=second, units=10)])
    assert (portion.start, portion.end) == (8, 10)
    assert target.cleared == draft.cleared == [*first.table.blocks, second.table.blocks[2]]
    assert second.table.blocks[:2] == first.table.blocks[:2]


def test_blocks_of_a_step_that_runs_out_of_them_are_cleared_too() -> None:
    manager, target, _ = make(4)
    slots = [start(manager, [which] * 9) for which in range(2)]
    with pytest.raises(BlocksExhausted):
        manager.portions([Quantum(slot=slot, units=9) for slot in slots])
    assert target.cleared == slots[0].table.blocks
    assert len(target.cleared) == 3
    # The first can go on with what it got.
    manager.portions([Quantum(slot=slots[0], units=9)])
    assert len(target.cleared) == 3
