"""Decoding in steps of fixed shapes, each recorded once and repeated from then on.

A step in which every sequence computes one token is padded to one of a few numbers of rows
and of blocks. Its inputs are copied into memory that stays where it is, and the recording of
this shape reads them there. Rows that pad write into the scratch block and read the padding
block, and nobody looks at what comes out of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headpond_workloads.generation.engine.attention import Attention, PagedStep
from headpond_workloads.generation.engine.cuda_graphs import Compute, Recorder
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.kv_cache import KvCache
from headpond_workloads.generation.engine.transfer import host_integers

LEAST_BLOCKS = 32
"""Block tables are not padded to fewer: so short ones cost nothing."""

_FIELDS = 3
"""Numbers of a row beside its block table."""


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """What a step is padded to.

    Attributes:
        rows: Sequences, with one token each.
        blocks: Of each block table.
    """

    rows: int
    blocks: int

    @property
    def numbers(self) -> int:
        """How many integers are the inputs of a step."""
        return self.rows * (_FIELDS + self.blocks)


class DecodeInputs:
    """The inputs of a step, as views of one piece of memory, copied at once.

    Attributes:
        token_ids: The last token of each sequence, of shape [rows].
        positions: Where it stands, of shape [rows].
        written: Where its keys and values go: flat token positions, of shape [rows].
        tables: Block tables, of shape [rows, blocks].
    """

    def __init__(self, memory: Tensor, shape: DecodeShape) -> None:
        """Lay the inputs out at the beginning of `memory`."""
        fields = _FIELDS * shape.rows
        self.token_ids, self.positions, self.written = memory[:fields].view(_FIELDS, -1)
        self.tables = memory[fields : shape.numbers].view(shape.rows, shape.blocks)

    def fill(self, spans: Sequence[Span], cache: KvCache) -> None:
        """Write spans of one token into the first rows, and padding into the others."""
        size, count = cache.block_tokens, len(spans)
        token_ids, positions = self.token_ids.numpy(), self.positions.numpy()
        written, tables = self.written.numpy(), self.tables.numpy()
        token_ids[:count] = [span.token_ids[0] for span in spans]
        positions[:count] = [span.start for span in spans]
        written[:count] = [
            span.blocks[span.start // size] * size + span.start % size for span in spans
        ]
        tables.fill(cache.padding_block)
        for row, span in enumerate(spans):
            held = span.blocks[: tables.shape[1]]
            tables[row, : len(held)] = held
        token_ids[count:] = positions[count:] = 0
        written[count:] = cache.scratch_block * size


class StaticDecode:
    """Computes steps in which every sequence decodes."""

    @torch.inference_mode()
    def __init__(
        self,
        model: PreTrainedModel,
        cache: KvCache,
        attention: Attention,
        recorder: Recorder,
        *,
        max_rows: int,
        max_blocks: int,
    ) -> None:
        """Record every shape, the largest first: the smaller ones fit into its memory.

        Args:
            model: Its attention is `paged_attention`.
            cache: Where keys and values are kept; nobody's yet.
            attention: How to attend over `cache`.
            recorder: Records each shape.
            max_rows: The most sequences of a step.
            max_blocks: The most blocks of a sequence.

        Raises:
            BundleError: The model can't be recorded.
        """
        self._model = model
        self._cache = cache
        self._attention = attention
        self._rows = doublings(1, max_rows)
        self._blocks = doublings(LEAST_BLOCKS, max_blocks)
        device, most = cache.device, DecodeShape(max_rows, max_blocks)
        vocabulary = model.config.get_text_config().vocab_size
        self._inputs = torch.empty(most.numbers, dtype=torch.long, device=device)
        self._logits = torch.empty(max_rows, vocabulary, device=device)
        self._recorded = {
            shape: self._record(recorder, shape)
            for rows in reversed(self._rows)
            for blocks in reversed(self._blocks)
            for shape in [DecodeShape(rows, blocks)]
        }

    def fits(self, spans: Sequence[Span]) -> bool:
        """Say whether a step is one of those that were recorded."""
        longest = self._blocks[-1] * self._cache.block_tokens
        return len(spans) <= self._rows[-1] and all(
            len(span.token_ids) == span.logits == 1 and span.end <= longest for span in spans
        )

    def forward(self, spans: Sequence[Span]) -> Tensor:
        """Compute a step that fits.

        Returns:
            Float32, of shape [spans, vocabulary].
        """
        needed = -(-max(span.end for span in spans) // self._cache.block_tokens)
        shape = DecodeShape(
            next(rows for rows in self._rows if rows >= len(spans)),
            next(blocks for blocks in self._blocks if blocks >= needed),
        )
        self._load(shape, spans)
        self._recorded[shape]()
        return self._logits[: len(spans)].clone()

    def _record(self, recorder: Recorder, shape: DecodeShape) -> Compute:
        self._load(shape, ())
        return recorder.record(partial(self._compute, shape))

    def _load(self, shape: DecodeShape, spans: Sequence[Span]) -> None:
        host = host_integers(shape.numbers, self._cache.device)
        DecodeInputs(host, shape).fill(spans, self._cache)
        self._inputs[: shape.numbers].copy_(host, non_blocking=True)

    def _compute(self, shape: DecodeShape) -> None:
        """Compute the inputs that are loaded; what is recorded."""
        inputs = DecodeInputs(self._inputs, shape)
        step = PagedStep(
            cache=self._cache,
            written=inputs.written,
            parts=(self._attention.decode(inputs.tables, inputs.positions),),
        )
        output = self._model(
            input_ids=inputs.token_ids.unsqueeze(0),
            position_ids=inputs.positions.unsqueeze(0),
            paged=step,
            use_cache=False,
        )
        self._logits[: shape.rows].copy_(output.logits[0])


def doublings(least: int, most: int) -> tuple[int, ...]:
    """Return `least`, its doubles below `most`, and `most`; `most` alone where that is less."""
    sizes = []
    size = least
    while size < most:
        sizes.append(size)
        size *= 2
    return (*sizes, most)
