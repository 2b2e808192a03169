"""Attention by FlexAttention, over the block table: the cache is read where it lies.

To its kernel the whole cache is one sequence of keys, and a row's block table says which
blocks of it to visit (`kv_indices` of its block mask). What a visited block holds is told
by its number: a block lies at the same index in every table that holds it, since what is
shared is the beginning of a prompt. So one array says for each block of the cache which
positions it holds, and the mask compares those with the row's first and last position.

The kernel is compiled for each shape, which takes seconds. So that there are few, rows are
padded to powers of two, and block tables to the longest. (Shapes that vary are no way out:
PyTorch 2.14's kernel of the CPU can't be compiled for them, and that of a GPU for short
queries is not used.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

from headpond.errors import BundleError
from headpond_workloads.generation.engine.attention import Window
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.kv_cache import KvCache
from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.transfer import integers

TILE_ROWS = 128
"""Rows for which the kernel visits the same blocks."""

_LEAST_CHUNK_ROWS = 16
_NOWHERE = -1
"""The position of rows that pad: they see nothing."""

_VARIANTS = 64
"""The most shapes that are compiled in a process."""

_LEAST_DOT = 16
"""Triton multiplies no smaller matrices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockRanges:
    """Which blocks the rows of a part visit, and which keys in them they see.

    All are int32.

    Attributes:
        counts: Blocks to visit, of shape [sequences, 1, tiles].
        indices: Their numbers, of shape [sequences, 1, tiles, columns]; those beyond the
            count mean nothing.
        places: The index of each block in the tables that hold it, of shape [blocks].
        first: The first position that each row sees, of shape [sequences, rows of each].
        last: The last one.
    """

    counts: Tensor
    indices: Tensor
    places: Tensor
    first: Tensor
    last: Tensor


Kernel = Callable[[Tensor, Tensor, Tensor, BlockRanges, float | None, int, bool], Tensor]


def check_flex(shape: KvShape, device: torch.device) -> None:
    """Refuse what the kernel of a GPU can't do.

    Raises:
        BundleError: Blocks or heads are too small for it.
    """
    if device.type == "cpu":
        return
    tokens = shape.block_tokens
    if tokens < _LEAST_DOT or tokens & (tokens - 1):
        raise BundleError(
            f"attention: flex needs blocks of 16, 32, 64, ... tokens, not {tokens}",
            param="model.block_tokens",
        )
    if shape.head_dim < _LEAST_DOT:
        raise BundleError(
            f"attention: flex needs heads at least 16 wide, not {shape.head_dim}",
            param="execution.options.attention",
        )


@dataclass(kw_only=True, slots=True)
class FlexPart:
    """One row of each of several sequences, or all rows of one chunk.

    Attributes:
        cache: Where keys and values are kept.
        kernel: What is compiled.
        columns: What block tables are padded to.
        rows: Where the rows lie in the step: `[first, last)`.
        tables: Block tables, of shape [sequences, blocks of each].
        positions: Position of each row, of shape [sequences, rows of each]; there are more
            than the step has rows, to which its queries are padded.
        ranges: By window, made by the first layer that needs one.
    """

    cache: KvCache
    kernel: Kernel
    columns: int
    rows: tuple[int, int]
    tables: Tensor
    positions: Tensor
    ranges: dict[Window, BlockRanges] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, scaling: float | None, window: Window) -> Tensor:
        """Attend over the cache as it lies; see `Part`."""
        keys, values = self.cache.stored(layer)
        query = query[:, self.rows[0] : self.rows[1]]
        heads, rows, width = query.shape
        query = pad(query, (0, 0, 0, self.positions.numel() - rows))
        decodes = self.positions.shape[1] == 1
        if decodes:
            # The query heads that share a KV head are laid out as its rows: each key is read
            # once, and the kernel for short queries takes any number of them.
            query = query.transpose(0, 1).reshape(-1, keys.shape[1], heads // keys.shape[1], width)
        else:
            query = query.unsqueeze(0)
        if window not in self.ranges:
            self.ranges[window] = self._ranges(window, query.shape[2])
        size = self.cache.block_tokens
        output = self.kernel(query, keys, values, self.ranges[window], scaling, size, decodes)
        if decodes:
            return output.reshape(-1, heads, output.shape[-1])[:rows]
        return output[0].transpose(0, 1)[:rows]

    def _ranges(self, window: Window, rows: int) -> BlockRanges:
        size, device = self.cache.block_tokens, self.tables.device
        sequences, width = self.tables.shape
        last = self.positions.expand(-1, rows)
        first = torch.zeros_like(last) if window is None else (last + 1 - window).clamp(min=0)
        begin = first[:, ::TILE_ROWS] // size
        whole = pad(last, (0, -rows % TILE_ROWS), value=_NOWHERE)
        end = whole.reshape(sequences, -1, TILE_ROWS).amax(dim=2) // size + 1
        columns = torch.arange(self.columns, device=device)
        at = (begin.unsqueeze(-1) + columns).clamp(max=width - 1)
        indices = self.tables.unsqueeze(1).expand(-1, at.shape[1], -1).gather(2, at)
        places = torch.zeros(self.cache.stored_blocks, dtype=torch.int32, device=device)
        order = torch.arange(width, dtype=torch.int32, device=device).repeat(sequences)
        return BlockRanges(
            counts=(end - begin).int().unsqueeze(1),
            indices=indices.int().unsqueeze(1),
            places=places.index_copy_(0, self.tables.flatten(), order),
            first=first.int().contiguous(),
            last=last.int().contiguous(),
        )


class FlexAttention:
    """One call for all decodes of a step, and one for each chunk."""

    def __init__(self, cache: KvCache, max_blocks: int) -> None:
        """Attend over `cache`; the kernel is compiled when it is called.

        Args:
            cache: Where keys and values are kept.
            max_blocks: The most blocks of a sequence.
        """
        self._cache = cache
        # The kernel of the CPU wants room for every block of the cache.
        self._columns = cache.stored_blocks if cache.device.type == "cpu" else max_blocks
        self._kernel: Kernel = torch.compile(  # type: ignore[call-overload]  # it lacks the limit
            _attend, dynamic=False, fullgraph=True, recompile_limit=_VARIANTS
        )

    def cut(self, packed: Sequence[Span]) -> Iterator[FlexPart]:
        """Give a part for all decodes, and one for each chunk."""
        decodes = list(takewhile(lambda span: len(span.token_ids) == 1, packed))
        if decodes:
            padding = _power_of_two(len(decodes)) - len(decodes)
            positions = [[span.start] for span in decodes] + [[_NOWHERE]] * padding
            tables = [span.blocks for span in decodes] + [()] * padding
            yield self._part((0, len(decodes)), tables, positions)
        row = len(decodes)
        for span in packed[len(decodes) :]:
            rows = len(span.token_ids)
            padding = _power_of_two(max(rows, _LEAST_CHUNK_ROWS)) - rows
            positions = [[*range(span.start, span.end), *[_NOWHERE] * padding]]
            yield self._part((row, row + rows), [span.blocks], positions)
            row += rows

    def decode(self, tables: Tensor, positions: Tensor) -> FlexPart:
        """Return one part for all sequences."""
        return FlexPart(
            cache=self._cache,
            kernel=self._kernel,
            columns=self._columns,
            rows=(0, len(positions)),
            tables=tables,
            positions=positions.unsqueeze(1),
        )

    def _part(
        self,
        rows: tuple[int, int],
        tables: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
    ) -> FlexPart:
        cache = self._cache
        width = max(len(table) for table in tables)
        padding = [cache.padding_block] * width
        return FlexPart(
            cache=cache,
            kernel=self._kernel,
            columns=self._columns,
            rows=rows,
            tables=integers([[*table, *padding][:width] for table in tables], cache.device),
            positions=integers(positions, cache.device),
        )


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    ranges: BlockRanges,
    scaling: float | None,
    block_tokens: int,
    decodes: bool,
) -> Tensor:
    """Compile to one kernel; of shape [sequences, heads, rows, head_dim], like `query`."""

    def visible(sequence: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        at = ranges.places[key // block_tokens] * block_tokens + key % block_tokens
        return (at >= ranges.first[sequence, row]) & (at <= ranges.last[sequence, row])

    # A GPU shares a row's blocks among its processors only when none is declared to need no
    # mask, and the kernel of the CPU wants to be told that none is.
    on_cpu = query.device.type == "cpu"
    mask = BlockMask.from_kv_blocks(
        ranges.counts,
        ranges.indices,
        torch.zeros_like(ranges.counts) if on_cpu else None,
        torch.zeros_like(ranges.indices) if on_cpu else None,
        BLOCK_SIZE=(TILE_ROWS, block_tokens),
        mask_mod=visible,
        seq_lengths=(query.shape[2], keys.shape[2]),
        compute_q_blocks=False,
    )
    return flex_attention(
        query,
        keys,
        values,
        block_mask=mask,
        scale=scaling,
        enable_gqa=True,
        # Left to choose, it takes the kernel for short queries for short chunks, and fails.
        kernel_options={"BACKEND": "AUTO" if decodes else "TRITON"},
    )
