"""Kaldi's filter banks, a chunk at a time: the same frames however the sound is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from headpond_workloads.speech.engine.recogniser import Samples

BANDS = 80
RATE_HZ = 16_000
SHIFT_SAMPLES = 160
FRAMES_PER_S = RATE_HZ // SHIFT_SAMPLES

_WINDOW_SAMPLES = 400
_FFT_SAMPLES = 512
_BEFORE = (_WINDOW_SAMPLES - SHIFT_SAMPLES) // 2  # a frame begins so long before its own samples
_LOWEST_HZ, _HIGHEST_HZ = 20.0, RATE_HZ / 2 - 400.0
_EMPHASIS = np.float32(0.97)
_GROUP_BANDS = 20
_BLOCK_FRAMES = 64  # as many as stay in a core's own cache
_LEAST = np.finfo(np.float32).eps

Floats = NDArray[np.float32]


class Fbank:
    """Computes frames as icefall trained on and sherpa-onnx computes them.

    The window is povey's, no noise is added, samples lie between -1 and 1, and the first
    frame is centred on the first samples, which are mirrored before the beginning.
    """

    def __init__(self) -> None:
        """Prepare window and bands."""
        angle = 2.0 * np.pi * np.arange(_WINDOW_SAMPLES) / (_WINDOW_SAMPLES - 1)
        self._window = ((0.5 - 0.5 * np.cos(angle)) ** 0.85).astype(np.float32)
        self._offset = (1 - _EMPHASIS) * self._window
        self._groups = list(_groups(_bands()))

    def begin(self, samples: Samples) -> Samples:
        """Return the first samples of an utterance with what goes before them.

        Args:
            samples: At least `FIRST_SAMPLES` of them.
        """
        return np.concatenate((samples[_BEFORE - 1 :: -1], samples))

    def frames(self, sounds: Sequence[Samples]) -> list[Floats]:
        """Return the frames that are complete of each stream, [frames, 80].

        Their `SHIFT_SAMPLES` each are used then; the rest belongs before what follows.

        Args:
            sounds: Of each stream what `begin` returned, or what was not used yet, and what
                followed.
        """
        counts = [max((len(sound) - _WINDOW_SAMPLES) // SHIFT_SAMPLES + 1, 0) for sound in sounds]
        if not any(counts):
            return [_NO_FRAMES] * len(sounds)
        joined = np.concatenate(sounds)
        starts = _starts([len(each) for each in sounds], counts)
        emphasised = np.empty_like(joined)
        emphasised[0] = 0.0
        np.subtract(joined[1:], _EMPHASIS * joined[:-1], out=emphasised[1:])
        blocks = [
            self._computed(joined, emphasised, starts[at : at + _BLOCK_FRAMES])
            for at in range(0, len(starts), _BLOCK_FRAMES)
        ]
        found = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        ends = accumulate(counts)
        return [found[end - count : end] for end, count in zip(ends, counts, strict=True)]

    def _computed(self, samples: Samples, emphasised: Samples, starts: NDArray[np.intp]) -> Floats:
        """Compute frames that begin at these samples."""
        means = _windows(samples)[starts].mean(axis=1, keepdims=True)
        # The window is 0 at its first sample, so that what lies before it does not matter.
        cut = _windows(emphasised)[starts]
        cut *= self._window
        cut -= means * self._offset
        # numpy's own takes three times as long.
        spectrum = torch.fft.rfft(torch.from_numpy(cut), _FFT_SAMPLES).numpy().view(np.float32)
        spectrum *= spectrum
        # How float32 products round depends on how many rows there are, so on how sound is cut.
        power = (spectrum[:, ::2] + spectrum[:, 1::2]).astype(np.float64)
        energies = np.empty((len(starts), BANDS), np.float32)
        for at, (first, last, weights) in enumerate(self._groups):
            energies[:, at * _GROUP_BANDS : (at + 1) * _GROUP_BANDS] = (
                power[:, first:last] @ weights
            )
        frames: Floats = np.log(np.maximum(energies, _LEAST, out=energies), out=energies)
        return frames


_NO_FRAMES = np.zeros((0, BANDS), np.float32)

FIRST_SAMPLES = _BEFORE
"""How many samples it takes to mirror them before the beginning."""


def _windows(samples: Samples) -> Samples:
    """Return the samples from each one on, as many as a frame is of; none is copied."""
    width = samples.itemsize
    shape = (max(len(samples) - _WINDOW_SAMPLES + 1, 0), _WINDOW_SAMPLES)
    return np.lib.stride_tricks.as_strided(samples, shape, (width, width), writeable=False)


def _starts(lengths: Sequence[int], counts: Sequence[int]) -> NDArray[np.intp]:
    """Return where frames begin in sounds that were joined."""
    joined = np.cumsum([0, *lengths[:-1]])
    return np.concatenate(
        [
            first + SHIFT_SAMPLES * np.arange(count)
            for first, count in zip(joined, counts, strict=True)
        ]
    )


def _groups(bands: NDArray[np.float64]) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """Yield neighbouring bands with the few frequencies that they hear: first, last, weights."""
    for at in range(0, BANDS, _GROUP_BANDS):
        weights = bands[:, at : at + _GROUP_BANDS]
        heard = np.flatnonzero(weights.any(axis=1))
        first, last = int(heard[0]), int(heard[-1]) + 1
        yield first, last, np.ascontiguousarray(weights[first:last])


def _bands() -> NDArray[np.float64]:
    """Return the weight of each frequency in each band, [256, 80]: triangles in mel."""
    edges = np.linspace(_mel(_LOWEST_HZ), _mel(_HIGHEST_HZ), BANDS + 2)
    at = _mel(np.arange(_FFT_SAMPLES // 2) * RATE_HZ / _FFT_SAMPLES)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (at - left) / (centre - left)
    falling = (right - at) / (right - centre)
    weights: NDArray[np.float64] = np.maximum(np.minimum(rising, falling), 0.0)
    return weights


def _mel(hz: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1127.0 * np.log1p(np.asarray(hz) / 700.0))
