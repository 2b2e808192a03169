"""Steps of the native decoder: spans in, logits out."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
from ctypes import byref

import numpy as np

from headpond.errors import EngineFailed
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.native.adapters import NativeAdapters
from headpond_workloads.generation.engine.native.cache import NativeKvCache
from headpond_workloads.generation.engine.native.library import library
from headpond_workloads.generation.engine.native.logits import NativeLogits
from headpond_workloads.generation.engine.native.structures import SpanRows, Step
from headpond_workloads.generation.engine.native.weights import NativeWeights


class NativeRunner:
    """Computes spans; every row's result is the same to the bit in whatever step it is."""

    def __init__(
        self,
        weights: NativeWeights,
        cache: NativeKvCache,
        *,
        threads: int,
        adapters: NativeAdapters,
    ) -> None:
        """Run `weights` over `cache` on `threads` threads, the caller's among them."""
        self._native = library()
        self._weights = weights
        self._cache = cache
        self._vocabulary = weights.structure.vocabulary
        weights.structure.cache = cache.structure
        self._decoder = self._native.headpond_decoder(byref(weights.structure), threads)
        if not self._decoder:
            raise MemoryError("the decoder can't be allocated")
        self._adapters = adapters
        count = len(adapters.structures)
        self._native.headpond_adapters(self._decoder, adapters.structures, count)
        weakref.finalize(self, self._native.headpond_decoder_free, self._decoder)

    def forward(self, spans: Sequence[Span]) -> NativeLogits:
        """Compute every span and return the logits that are wanted.

        Returns:
            A row for each that is wanted, in the order of `spans`.

        Raises:
            EngineFailed: There was not enough memory for so many rows.
        """
        order = _by_adapter(spans)
        tokens: array[int] = array("i")
        rows = (SpanRows * len(spans))()
        tables = []
        wanted: list[Sequence[int]] = [()] * len(spans)
        for at, place in enumerate(order):
            span = spans[place]
            first, count = len(tokens), len(span.token_ids)
            tokens.extend(span.token_ids)
            tables.append(np.asarray(span.blocks, dtype=np.int32))
            adapter = -1 if span.adapter is None else span.adapter
            rows[at] = SpanRows(first, count, span.start, adapter, tables[at].ctypes.data)
            wanted[place] = range(first + count - span.logits, first + count)
        chosen = array("i", [row for each in wanted for row in each])
        logits = np.empty((len(chosen), self._vocabulary), dtype=np.float32)
        step = Step(
            rows=len(tokens),
            spans=len(spans),
            wanted=len(chosen),
            tokens=tokens.buffer_info()[0],
            span=rows,
            wanted_rows=chosen.buffer_info()[0],
            logits=logits.ctypes.data,
        )
        if self._native.headpond_forward(self._decoder, byref(step)):
            raise EngineFailed("there is not enough memory for the step")
        return NativeLogits(logits)


def _by_adapter(spans: Sequence[Span]) -> Sequence[int]:
    """Return the order in which spans of one adapter lie together."""
    if all(span.adapter is None for span in spans):
        return range(len(spans))
    adapters = [-1 if span.adapter is None else span.adapter for span in spans]
    return sorted(range(len(spans)), key=adapters.__getitem__)
