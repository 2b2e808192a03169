"""Samples from bytes that are split anywhere, and one channel from several."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headpond_workloads.speech.engine.front.g711 import ALAW, ULAW
from headpond_workloads.speech.items import Encoding, Format

Samples = NDArray[np.float32]
"""One channel, from -1 to 1, all finite; shape `(samples,)`."""

_PCM16_SCALE = np.float32(1 / 32768)


class Unpacker:
    """Reads the samples of one stream; what is left of a sample waits for its rest."""

    def __init__(self, form: Format) -> None:
        """Read a stream of this format."""
        self._form = form
        self._frame_bytes = form.frame_bytes
        self._rest = b""

    def unpack(self, content: bytes) -> Samples:
        """Return the samples that are complete now, channels mixed into one."""
        content = self._rest + content
        whole = len(content) // self._frame_bytes * self._frame_bytes
        self._rest = content[whole:]
        frames = _values(content[:whole], self._form.encoding).reshape(-1, self._form.channels)
        return mixed(frames)

    def forget(self) -> None:
        """Drop what is left of a sample."""
        self._rest = b""


def _values(content: bytes, encoding: Encoding) -> Samples:
    if encoding is Encoding.PCM16:
        return np.frombuffer(content, "<i2").astype(np.float32) * _PCM16_SCALE
    if encoding is Encoding.FLOAT32:
        return cleaned(np.frombuffer(content, "<f4"))
    table = ULAW if encoding is Encoding.ULAW else ALAW
    values: Samples = table[np.frombuffer(content, np.uint8)]
    return values


def cleaned(values: NDArray[np.floating]) -> Samples:
    """Return floats as a sound card plays them: within -1 and 1, and silence for NaN."""
    finite = np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=-1.0)
    bounded: Samples = np.clip(finite, -1.0, 1.0).astype(np.float32)
    return bounded


def mixed(frames: Samples) -> Samples:
    """Return the mean of the channels.

    Args:
        frames: Shape `(samples, channels)`.
    """
    if frames.shape[1] == 1:
        return frames[:, 0]
    mean: Samples = frames.mean(axis=1, dtype=np.float32)
    return mean
