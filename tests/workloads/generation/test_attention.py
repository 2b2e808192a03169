"""Both ways to attend against plain attention, over blocks that lie anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headpond.errors import BundleError
from headpond_workloads.generation.engine.attention import Attention, Part, Window
from headpond_workloads.generation.engine.flex_attention import FlexAttention, check_flex
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.kv_cache import KvCache
from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.sdpa_attention import REACH, SdpaAttention, reach

HEADS, WIDTH, BLOCK, BLOCKS, SCALING = 9, 8, 16, 70, 0.3
SHAPE = KvShape(layers=2, kv_heads=3, head_dim=WIDTH, block_tokens=BLOCK, dtype="float32")
LAYER = 1
MOST = 20
"""Blocks of the longest sequence."""

KINDS: dict[str, Callable[[KvCache], Attention]] = {
    "sdpa": SdpaAttention,
    "flex": lambda cache: FlexAttention(cache, MOST),
}


@given(st.integers(1, 200_000))
def test_keys_are_padded_by_little(tokens: int) -> None:
    assert tokens <= reach(tokens) <= max(tokens + REACH - 1, tokens * 5 // 4)


@given(st.integers(0, 4000), st.integers(1, REACH))
def test_all_rows_of_a_segment_reach_equally_far(segment: int, offset: int) -> None:
    # Rounding depends on the number of keys, and chunks are cut at segments only.
    assert reach(segment * REACH + offset) == reach((segment + 1) * REACH)


def random(seed: int, *sizes: int) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def cache() -> KvCache:
    """Every block holds something, so that a wrong one shows."""
    cache = KvCache(SHAPE, BLOCKS, torch.device("cpu"))
    for layer in range(SHAPE.layers):
        keys, values = random(layer, 2, BLOCKS * BLOCK, SHAPE.kv_heads, WIDTH)
        cache.write(layer, torch.arange(BLOCKS * BLOCK), keys, values)
    return cache


def plain(cache: KvCache, span: Span, query: Tensor, window: Window) -> Tensor:
    """Attend with the rows of one span, of shape [heads, rows, width], key by key."""
    at = torch.arange(span.end)
    held = torch.tensor(span.blocks)[at // BLOCK] * BLOCK + at % BLOCK
    keys, values = (
        each[0, :, held].repeat_interleave(HEADS // SHAPE.kv_heads, dim=0)
        for each in cache.stored(LAYER)
    )
    distance = torch.arange(span.start, span.end).unsqueeze(1) - at
    hidden = (distance < 0) | (distance >= (window or span.end))
    scores = (query @ keys.transpose(1, 2) * SCALING).masked_fill(hidden, float("-inf"))
    return (scores.softmax(dim=-1) @ values).transpose(0, 1)


def sequences(seed: int, chunk: int) -> list[Span]:
    """Three that decode, two of which have a beginning in common, and a chunk of a prompt."""
    generator = torch.Generator().manual_seed(seed)
    free = torch.randperm(BLOCKS, generator=generator).tolist()
    starts = torch.randint(3 * BLOCK, 14 * BLOCK, (4,), generator=generator).tolist()
    starts[3] //= 2
    lengths = [1, 1, 1, chunk]
    tables: list[list[int]] = []
    for start, length in zip(starts, lengths, strict=True):
        count = -(-(start + length) // BLOCK)
        tables.append([free.pop() for _ in range(count)])
    tables[1][:2] = tables[0][:2]
    decodes = sorted(zip(starts[:3], tables[:3], strict=True))
    spans = [Span(token_ids=[0], start=start, blocks=table) for start, table in decodes]
    return [*spans, Span(token_ids=[0] * chunk, start=starts[3], blocks=tables[3])]


def attended(parts: Sequence[Part], query: Tensor, window: Window) -> Tensor:
    return torch.cat([part.attend(LAYER, query, SCALING, window) for part in parts])


@pytest.mark.timeout(300)  # kernels may have to be compiled first
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_attended_as_each_sequence_alone(kind: str, seed: int, cache: KvCache) -> None:
    spans = sequences(seed, 150)
    query = random(9, HEADS, 3 + 150, WIDTH)
    parts = list(KINDS[kind](cache).cut(spans))
    for window in (None, 40, 1):
        rows = torch.split(query, [len(span.token_ids) for span in spans], dim=1)
        expected = [
            plain(cache, span, each, window) for span, each in zip(spans, rows, strict=True)
        ]
        found = attended(parts, query, window)
        torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_padded_tables_are_attended_as_those_of_a_step(kind: str, cache: KvCache) -> None:
    spans = sequences(5, 150)[:3]
    attention = KINDS[kind](cache)
    query = random(9, HEADS, 4, WIDTH)
    tables = torch.full((4, MOST), cache.padding_block)
    for row, span in enumerate(spans):
        tables[row, : len(span.blocks)] = torch.tensor(span.blocks)
    positions = torch.tensor([*(span.start for span in spans), 0])
    part = attention.decode(tables, positions)
    for window in (None, 40):
        found = attended([part], query, window)
        expected = attended(list(attention.cut(spans)), query[:, :3], window)
        torch.testing.assert_close(found[:3], expected, rtol=1e-4, atol=1e-5)
        assert found.isfinite().all()


def test_flex_visits_only_blocks_that_are_seen(cache: KvCache) -> None:
    spans = sequences(5, 150)
    decodes, chunk = FlexAttention(cache, MOST).cut(spans)
    for window in (None, 40):
        attended([decodes, chunk], random(9, HEADS, 3 + 150, WIDTH), window)
    counts = decodes.ranges[None].counts.flatten().tolist()
    assert counts == [*(len(span.blocks) for span in spans[:3]), 0]
    assert set(decodes.ranges[40].counts.flatten().tolist()) <= {0, 3, 4}
    whole, rest = chunk.ranges[None].counts.flatten().tolist()
    assert whole == -(-(spans[3].start + 128) // BLOCK) < rest == len(spans[3].blocks)


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"block_tokens": 8}, "model.block_tokens"),
        ({"block_tokens": 24}, "model.block_tokens"),
        ({"head_dim": 8}, "execution.options.attention"),
    ],
)
def test_flex_says_what_a_gpu_can_not_do(changed: dict[str, int], param: str) -> None:
    fine = {"layers": 1, "kv_heads": 3, "head_dim": 64, "block_tokens": 16}
    check_flex(KvShape(**fine, dtype="bfloat16"), torch.device("cuda"))
    shape = KvShape(**(fine | changed), dtype="bfloat16")
    check_flex(shape, torch.device("cpu"))
    with pytest.raises(BundleError, match="flex needs") as refusal:
        check_flex(shape, torch.device("cuda"))
    assert refusal.value.param == param
