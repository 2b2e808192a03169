"""Another sample rate, piece by piece: the same result however the pieces are cut."""

from __future__ import annotations

import numpy as np
import soxr  # type: ignore[import-untyped]

from headpond_workloads.speech.engine.front.pcm import Samples

MIN_RATE_HZ = 1_000
MAX_RATE_HZ = 768_000

_QUALITY = "HQ"  # keeps up to 37 ms back on the way down to 16 kHz; MQ would keep as much
_NOTHING = np.zeros(0, np.float32)


class Resampler:
    """Changes the rate of one stream; equal rates pass through untouched."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        """Go from one rate to another, both between `MIN_RATE_HZ` and `MAX_RATE_HZ`."""
        self._stream = (
            None
            if from_hz == to_hz
            else soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality=_QUALITY)
        )

    def add(self, samples: Samples) -> Samples:
        """Return what is ready after these samples; the filter keeps some back."""
        if self._stream is None or not len(samples):
            return samples
        ready: Samples = self._stream.resample_chunk(samples)
        return ready

    def end(self) -> Samples:
        """Return what the filter has kept back; nothing can be added any more."""
        if self._stream is None:
            return _NOTHING
        rest: Samples = self._stream.resample_chunk(_NOTHING, last=True)
        return rest
