"""One forward for all sequences of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headpond_workloads.generation.engine.attention import Attention, PagedStep
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.kv_cache import KvCache
from headpond_workloads.generation.engine.static_decode import StaticDecode
from headpond_workloads.generation.engine.torch_logits import TorchLogits
from headpond_workloads.generation.engine.transfer import integers

Row = TypeVar("Row")


class ModelRunner:
    """Packs spans into the model's input and takes the logits out."""

    def __init__(
        self,
        model: PreTrainedModel,
        cache: KvCache,
        attention: Attention,
        decode: StaticDecode | None = None,
    ) -> None:
        """Run `model` over `cache`, on the device where both are.

        Args:
            model: Its attention is `paged_attention`.
            cache: Where keys and values are kept.
            attention: How to attend over `cache`.
            decode: Computes the steps in which every sequence decodes, if given.
        """
        self._model = model
        self._cache = cache
        self._attention = attention
        self._decode = decode

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span]) -> TorchLogits:
        """Compute every span and return the logits that are wanted.

        Returns:
            A row for each that is wanted, in the order of `spans`.
        """
        if self._decode is not None and self._decode.fits(spans):
            return TorchLogits(self._decode.forward(spans))
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
        return TorchLogits(logits.float())

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
            cache=self._cache,
            written=self._tensor(written),
            parts=tuple(self._attention.cut(packed)),
        )

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return integers(values, self._cache.device)


def _not_alone(rows: Sequence[Row]) -> Sequence[Row]:
    """Repeat a row that is alone.

    Linear layers sum a single row in another order than the same row among others, so a
    sequence that is alone is computed twice; that takes no longer. (CPUs, bfloat16.)
    """
    return [*rows, *rows] if len(rows) == 1 else rows


def _packing(span: Span) -> tuple[bool, int]:
    """Return the place of a span: decodes first, the shorter before the longer; then chunks."""
    decodes = len(span.token_ids) == 1
    return not decodes, span.end if decodes else 0


def _ends(packed: Sequence[Span]) -> Iterator[int]:
    row = 0
    for span in packed:
        row += len(span.token_ids)
        yield row
