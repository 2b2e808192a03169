"""One forward for all sequences of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headpond_workloads.generation.engine.attention import QUERY_ROWS, REACH, PagedStep, Part, reach
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.kv_cache import KvCache

Row = TypeVar("Row")

_DECODE, _CHUNK = 0, 1


class ModelRunner:
    """Packs spans into the model's input and takes the logits out."""

    def __init__(self, model: PreTrainedModel, cache: KvCache) -> None:
        """Run `model` over `cache`, on the device where both are."""
        self._model = model
        self._cache = cache

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span]) -> Tensor:
        """Compute every span and return the logits that are wanted.

        Returns:
            Float32, of shape [logits wanted, vocabulary], in the order of `spans`.
        """
        order = sorted(range(len(spans)), key=lambda at: _packing(spans[at]))
        packed = [spans[at] for at in order]
        ends = dict(zip(order, _ends(packed), strict=True))
        wanted = [
            row for at, span in enumerate(spans) for row in range(ends[at] - span.logits, ends[at])
        ]
        output = self._model(
            logits_to_keep=self._tensor(_not_alone(wanted)),
            use_cache=False,
            **self._inputs(packed if len(packed[0].token_ids) > 1 else _not_alone(packed)),
        )
        logits: Tensor = output.logits[0, : len(wanted)]
        return logits.float()

    def _inputs(self, packed: Sequence[Span]) -> dict[str, Tensor | PagedStep]:
        positions = [at for span in packed for at in range(span.start, span.end)]
        return {
            "input_ids": self._tensor([[token for span in packed for token in span.token_ids]]),
            "position_ids": self._tensor([positions]),
            "paged": self._step(packed),
        }

    def _step(self, packed: Sequence[Span]) -> PagedStep:
        size = self._cache.block_tokens
        written = [
            span.blocks[at // size] * size + at % size
            for span in packed
            for at in range(span.start, span.end)
        ]
        return PagedStep(
            cache=self._cache, written=self._tensor(written), parts=tuple(self._parts(packed))
        )

    def _parts(self, packed: Sequence[Span]) -> Iterator[Part]:
        """Cut the packed rows into calls of attention."""
        row = 0
        for (group, _), members in groupby(packed, key=_packing):
            together = list(members)
            if group == _DECODE:
                yield self._part(row, [(span, span.start, span.end) for span in together])
                row += len(together)
                continue
            for span in together:
                for start, end in _segments(span):
                    yield self._part(row + start - span.start, [(span, start, end)])
                row += len(span.token_ids)

    def _part(self, row: int, pieces: Sequence[tuple[Span, int, int]]) -> Part:
        """Return the call for pieces (a span, from a position to another) of equal reach."""
        size = self._cache.block_tokens
        rows = pieces[0][2] - pieces[0][1]
        padded = rows if rows == 1 else -(-rows // QUERY_ROWS) * QUERY_ROWS
        blocks = -(-reach(pieces[0][2]) // size)
        padding = [self._cache.padding_block] * blocks
        return Part(
            rows=(row, row + rows * len(pieces)),
            blocks=self._tensor([[*span.blocks, *padding][:blocks] for span, _, _ in pieces]),
            positions=self._tensor([range(start, start + padded) for _, start, _ in pieces]),
        )

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._cache.device)


def _not_alone(rows: Sequence[Row]) -> Sequence[Row]:
    """Repeat a row that is alone.

    Linear layers sum a single row in another order than the same row among others, so a
    sequence that is alone is computed twice; that takes no longer. (CPUs, bfloat16.)
    """
    return [*rows, *rows] if len(rows) == 1 else rows


def _packing(span: Span) -> tuple[int, int]:
    """Return the group of a span: decodes of equal reach first, then chunks."""
    return (_DECODE, reach(span.end)) if len(span.token_ids) == 1 else (_CHUNK, 0)


def _segments(span: Span) -> Iterator[tuple[int, int]]:
    """Cut a chunk where the reach of its positions may change."""
    start = span.start
    while start < span.end:
        end = min(span.end, (start // REACH + 1) * REACH)
        yield start, end
        start = end


def _ends(packed: Sequence[Span]) -> Iterator[int]:
    row = 0
    for span in packed:
        row += len(span.token_ids)
        yield row
