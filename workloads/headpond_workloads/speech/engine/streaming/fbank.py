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
_BLOCK_FRAMES = 128  # as many as stay in a core's own cache
_HALF_SAMPLES = SHIFT_SAMPLES // 2  # a frame is of five of these
_BETWEEN = 2  # shifts: so much further goes the last frame of a sound
_MEAN = (1 - _EMPHASIS) / np.float32(_WINDOW_SAMPLES)
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
        self._groups = list(_groups(_bands()))
        (self._silence,) = self.frames([np.zeros(SILENT_SAMPLES, np.float32)])

    def begin(self, samples: Samples) -> Samples:
        """Return the first samples of an utterance with what goes before them.

        Args:
            samples: At least `FIRST_SAMPLES` of them.
        """
        return np.concatenate((samples[_BEFORE - 1 :: -1], samples))

    def silence(self, frames: int) -> Floats:
        """Return frames of silence, the same to the bit as those of samples that are 0."""
        return np.repeat(self._silence, frames, axis=0)

    def frames(self, sounds: Sequence[Samples]) -> list[Floats]:
        """Return the frames that are complete of each stream, [frames, 80].

        Their `SHIFT_SAMPLES` each are used then; the rest belongs before what follows.

        Args:
            sounds: Of each stream what `begin` returned, or what was not used yet, and what
                followed.
        """
        counts = [max((len(sound) - _WINDOW_SAMPLES) // SHIFT_SAMPLES + 1, 0) for sound in sounds]
        total = sum(counts)
        if not total:
            return [_NO_FRAMES] * len(sounds)
        joined = _joined(sounds, counts)
        starts = _starts(counts)
        halves = joined.reshape(-1, _HALF_SAMPLES).sum(axis=1)
        first, second, third, fourth, fifth = (halves[2 * starts + at] for at in range(5))
        means = ((first + second) + (third + fourth) + fifth) * _MEAN
        emphasised = np.empty_like(joined)
        # The window is 0 at its first sample, so that what lies before it does not matter.
        emphasised[0] = 0.0
        np.multiply(joined[:-1], _EMPHASIS, out=emphasised[1:])
        np.subtract(joined[1:], emphasised[1:], out=emphasised[1:])
        energies = self._energies(emphasised, starts, means[:, None])
        frames = np.log(np.maximum(energies, _LEAST, out=energies), out=energies)
        ends = accumulate(counts)
        return [frames[end - count : end] for end, count in zip(ends, counts, strict=True)]

    def _energies(self, samples: Samples, starts: NDArray[np.intp], means: Floats) -> Floats:
        """Return the energy in each band of frames that begin at these multiples of the shift."""
        windows = _windows(samples)
        cut = np.zeros((min(len(starts), _BLOCK_FRAMES), _FFT_SAMPLES), np.float32)
        padded = torch.from_numpy(cut)
        energies = np.empty((len(starts), BANDS), np.float32)
        for at in range(0, len(starts), _BLOCK_FRAMES):
            frames = windows[starts[at : at + _BLOCK_FRAMES]]
            frames -= means[at : at + _BLOCK_FRAMES]
            np.multiply(frames, self._window, out=cut[: len(frames), :_WINDOW_SAMPLES])
            # numpy's own takes three times as long.
            spectrum = torch.fft.rfft(padded[: len(frames)]).numpy().view(np.float32)
            spectrum *= spectrum
            # How float32 products round depends on how many rows there are, so on how sound
            # is cut.
            power = (spectrum[:, ::2] + spectrum[:, 1::2]).astype(np.float64)
            found = energies[at : at + _BLOCK_FRAMES]
            for group, (first, last, weights) in enumerate(self._groups):
                bands = slice(group * _GROUP_BANDS, (group + 1) * _GROUP_BANDS)
                found[:, bands] = power[:, first:last] @ weights
        return energies


_NO_FRAMES = np.zeros((0, BANDS), np.float32)

FIRST_SAMPLES = _BEFORE
"""How many samples it takes to mirror them before the beginning."""


SILENT_SAMPLES = _WINDOW_SAMPLES
"""With so much silence after a sound, all further frames are silence."""


def samples_of(frames: int) -> int:
    """Return how many samples so many frames are made of."""
    return (frames - 1) * SHIFT_SAMPLES + _WINDOW_SAMPLES


def _joined(sounds: Sequence[Samples], counts: Sequence[int]) -> Samples:
    """Join what frames are made of; each sound begins at a multiple of the shift."""
    joined = np.zeros((sum(counts) + _BETWEEN * len(sounds)) * SHIFT_SAMPLES, np.float32)
    at = 0
    for sound, count in zip(sounds, counts, strict=True):
        if count:
            used = samples_of(count)
            joined[at : at + used] = sound[:used]
        at += (count + _BETWEEN) * SHIFT_SAMPLES
    return joined


def _starts(counts: Sequence[int]) -> NDArray[np.intp]:
    """Return at which multiples of the shift frames begin in sounds that were joined."""
    before = np.repeat(_BETWEEN * np.arange(len(counts)), counts)
    return np.arange(len(before)) + before


def _windows(samples: Samples) -> Samples:
    """Return as many samples as a frame is of, from each multiple of the shift; none is copied."""
    width = samples.itemsize
    count = (len(samples) - _WINDOW_SAMPLES) // SHIFT_SAMPLES + 1
    strides = (SHIFT_SAMPLES * width, width)
    return np.ndarray((count, _WINDOW_SAMPLES), samples.dtype, samples, strides=strides)


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
