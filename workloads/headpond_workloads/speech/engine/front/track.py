"""The decoded frames of one track, as samples of one channel at one rate."""

from __future__ import annotations

from typing import Any

import numpy as np
from av.audio.frame import AudioFrame
from numpy.typing import NDArray

from headpond.errors import InvalidRequest
from headpond_workloads.speech.engine.front.pcm import Samples, cleaned, mixed
from headpond_workloads.speech.engine.front.resampling import (
    MAX_RATE_HZ,
    MIN_RATE_HZ,
    Resampler,
)

_UNSIGNED_ZERO = 128
_MAX_CHANNELS = 64
_MAX_PLANES = 7
"""PyAV counts the planes of a frame up to a null pointer, and more than these have none."""


class Track:
    """Takes frames in; their rate may change on the way.

    Attributes:
        pcm_bytes: What was decoded so far, all channels.
        end_s: Where the last frame ended, by the file's own clock.
    """

    def __init__(self, rate_hz: int) -> None:
        """Give samples at `rate_hz` out."""
        self._rate_hz = rate_hz
        self._from_hz = 0
        self._resampler = Resampler(rate_hz, rate_hz)
        self._pieces: list[Samples] = []
        self._heard_s = 0.0
        self.pcm_bytes = 0
        self.end_s = 0.0

    @property
    def duration_ms(self) -> float:
        """How long the frames are together."""
        return self._heard_s * 1000

    def add(self, frame: AudioFrame) -> None:
        """Take in the next frame, which holds samples.

        Raises:
            InvalidRequest: Its rate or its channels are none that anybody records with.
        """
        rate_hz = frame.sample_rate
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            raise InvalidRequest(f"the file's rate of {rate_hz} Hz is not read here", param="file")
        if rate_hz != self._from_hz:
            self._pieces.append(self._resampler.end())
            self._resampler = Resampler(rate_hz, self._rate_hz)
            self._from_hz = rate_hz
        channels = frame.layout.nb_channels
        if not 1 <= channels <= (_MAX_PLANES if frame.format.is_planar else _MAX_CHANNELS):
            raise InvalidRequest(f"{channels} channels are not read here", param="file")
        values = _values(frame)
        self.pcm_bytes += values.nbytes
        length_s = frame.samples / rate_hz
        self._heard_s += length_s
        begins_s = self.end_s if frame.time is None else frame.time
        self.end_s = begins_s + length_s
        planes = values.T if frame.format.is_planar else values.reshape(-1, channels)
        self._pieces.append(self._resampler.add(mixed(_scaled(planes))))

    def end(self) -> Samples:
        """Return all samples."""
        self._pieces.append(self._resampler.end())
        return np.concatenate(self._pieces)


def _values(frame: AudioFrame) -> NDArray[Any]:
    if frame.format.name != "s64":
        return frame.to_ndarray()
    # PyAV makes no array of these; they are never planar.
    values = memoryview(frame.planes[0])
    return np.frombuffer(values, np.int64, frame.samples * frame.layout.nb_channels)


def _scaled(values: NDArray[Any]) -> Samples:
    """Return samples of any type as floats from -1 to 1."""
    if np.issubdtype(values.dtype, np.floating):
        return cleaned(values)
    if values.dtype == np.uint8:
        values = values.astype(np.int16) - _UNSIGNED_ZERO
        return values.astype(np.float32) / np.float32(_UNSIGNED_ZERO)
    full_scale = -float(np.iinfo(values.dtype).min)
    scaled: Samples = (values / full_scale).astype(np.float32)
    return scaled
