from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.errors import Overloaded
from headpond_workloads.generation.engine.blocks import BlockPool, BlocksExhausted, BlockTable


def test_a_table_holds_as_many_blocks_as_its_tokens_need() -> None:
    pool = BlockPool(4)
    table = BlockTable(pool, 16)
    assert len(table.reserve(1)) == 1
    assert table.reserve(16) == []
    assert len(table.reserve(17)) == 1
    assert (len(table.blocks), pool.free) == (2, 2)


def test_taking_too_many_blocks_takes_none() -> None:
    pool = BlockPool(3)
    table = BlockTable(pool, 16)
    table.reserve(16)
    with pytest.raises(BlocksExhausted) as refusal:
        table.reserve(65)
    assert isinstance(refusal.value, Overloaded)
    assert (len(table.blocks), pool.free) == (1, 2)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 90)), max_size=60))
def test_every_block_is_free_or_in_exactly_one_table(actions: list[tuple[int, int]]) -> None:
    pool = BlockPool(12)
    tables = [BlockTable(pool, 16) for _ in range(4)]
    for which, tokens in actions:
        if tokens == 0:
            tables[which].clear()
            continue
        try:
            tables[which].reserve(tokens)
        except BlocksExhausted:
            assert -(-tokens // 16) - len(tables[which].blocks) > pool.free
        held = [block for table in tables for block in table.blocks]
        assert len(held) == len(set(held)) == pool.count - pool.free
    for table in tables:
        table.clear()
    assert sorted(pool.take(12)) == list(range(12))
