"""Batches of the native encoder: token IDs in, vectors out."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import byref
from queue import SimpleQueue

import numpy as np
import torch

from headpond.errors import EngineFailed
from headpond_workloads.encoders.native.library import library
from headpond_workloads.encoders.native.structures import Batch
from headpond_workloads.encoders.native.weights import NativeWeights
from headpond_workloads.encoders.tokens import Floats, Tokens, starts

BATCH_TOKENS = 32
"""Weights are read once for each batch; from here on that is hidden behind the computing."""


class NativeEncoder:
    """Computes each batch on the thread that asks, without padding.

    A sequence's result is the same to the bit in whatever batch it is.
    """

    def __init__(self, weights: NativeWeights, *, lanes: int, weight_bytes: int) -> None:
        """Make room for `lanes` batches at once, and as many of small calls.

        Raises:
            MemoryError: There is not enough.
        """
        self._native = library()
        self._weights = weights
        self._idle: SimpleQueue[int] = SimpleQueue()
        self.lanes = self.express_lanes = lanes
        self.weight_bytes = weight_bytes
        self.batch_tokens = BATCH_TOKENS
        self.padded_tokens = 0
        for _ in range(lanes + self.express_lanes):
            workspace = self._native.headpond_encoder(byref(weights.structure))
            if not workspace:
                raise MemoryError("the encoder can't be allocated")
            weakref.finalize(self, self._native.headpond_encoder_free, workspace)
            self._idle.put(workspace)

    def key(self, tokens: int) -> tuple[int, ...]:
        """Return nothing: without padding, any sequences share a batch."""
        del tokens
        return ()

    def encode(self, sequences: Sequence[Tokens], *, first_only: bool = False) -> Floats:
        """Compute a batch; see `Encoder`."""
        tokens = np.concatenate([each.token_ids for each in sequences])
        types = np.concatenate([each.type_ids for each in sequences])
        begin = starts(sequences)
        rows = len(sequences) if first_only else len(tokens)
        out = torch.empty(rows, self._weights.structure.hidden)
        batch = Batch(
            rows=len(tokens),
            sequences=len(sequences),
            first_only=int(first_only),
            tokens=tokens.ctypes.data,
            types=types.ctypes.data,
            starts=begin.ctypes.data,
            out=out.data_ptr(),
        )
        workspace = self._idle.get()
        try:
            failed = self._native.headpond_encode(workspace, byref(batch))
        finally:
            self._idle.put(workspace)
        if failed:
            raise EngineFailed("there is not enough memory for the batch")
        found: Floats = out.numpy()
        return found
