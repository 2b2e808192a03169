"""A streaming encoder in ONNX, as icefall exports and sherpa-onnx runs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headpond.errors import BundleError
from headpond_workloads.speech.engine.streaming.network import Cache, Floats
from headpond_workloads.speech.engine.streaming.onnx_session import OnnxSession


class OnnxEncoder:
    """Takes frames and caches, gives rows and the caches after them, in the same order.

    So are zipformer (both versions) and LSTM encoders, and CTC models, whose rows are log
    probabilities of tokens.
    """

    def __init__(self, session: OnnxSession) -> None:
        """Learn the shapes of the caches.

        Raises:
            BundleError: Its inputs and outputs are other ones.
        """
        if len(session.inputs) < 2 or len(session.inputs) != len(session.outputs):
            raise BundleError(
                f"{session.name} should take frames and caches, and give rows and caches",
                param=f"artifacts.{session.name}",
            )
        self._session = session
        self.frames = session.number("T")
        self.shift = session.number("decode_chunk_len")
        empties = [session.empty(at) for at in range(1, len(session.inputs))]
        self._initial: Cache = tuple(array for array, _ in empties)
        self._axes = [axis for _, axis in empties]
        self._before = [(slice(None),) * axis for axis in self._axes]
        self.cache_bytes = sum(array.nbytes for array in self._initial)
        rows, _ = self.encode(np.zeros((1, self.frames, 80), np.float32), [self._initial])
        self.subsampling = self.shift // rows.shape[1]

    def initial(self) -> Cache:
        """Return the cache of a stream that begins."""
        return self._initial

    def encode(self, frames: Floats, caches: Sequence[Cache]) -> tuple[Floats, list[Cache]]:
        """Encode a chunk of each stream; see `Encoder`."""
        stacked = [
            np.concatenate([cache[at] for cache in caches], axis=axis)
            for at, axis in enumerate(self._axes)
        ]
        rows, *after = self._session.run([frames, *stacked])
        # Not `split`, which takes longer than a small network.
        places = [
            [(*before, slice(stream, stream + 1)) for before in self._before]
            for stream in range(len(caches))
        ]
        split = [
            tuple(array[place] for array, place in zip(after, where, strict=True))
            for where in places
        ]
        return rows.astype(np.float32, copy=False), split
