"""Kaldi's filter banks, a chunk at a time: the same frames however the sound is cut."""

from __future__ import annotations

import numpy as np
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
        self._bands = _bands()

    def begin(self, samples: Samples) -> Samples:
        """Return the first samples of an utterance with what goes before them.

        Args:
            samples: At least `FIRST_SAMPLES` of them.
        """
        return np.concatenate((samples[_BEFORE - 1 :: -1], samples))

    def frames(self, samples: Samples) -> tuple[Floats, Samples]:
        """Return the frames that are complete, [frames, 80], and the samples for the next.

        Args:
            samples: What was returned before, or `begin`, and what followed.
        """
        count = max((len(samples) - _WINDOW_SAMPLES) // SHIFT_SAMPLES + 1, 0)
        if not count:
            return np.zeros((0, BANDS), np.float32), samples
        windows = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW_SAMPLES)
        cut = windows[: count * SHIFT_SAMPLES : SHIFT_SAMPLES]
        cut = cut - cut.mean(axis=1, keepdims=True)
        emphasised = cut.copy()
        emphasised[:, 1:] -= _EMPHASIS * cut[:, :-1]
        emphasised[:, 0] -= _EMPHASIS * cut[:, 0]
        spectrum = np.fft.rfft(emphasised * self._window, _FFT_SAMPLES, axis=1)
        power = spectrum.real.astype(np.float64) ** 2 + spectrum.imag.astype(np.float64) ** 2
        # How float32 products round depends on how many rows there are, so on how sound is cut.
        energies = np.maximum(power[:, :-1] @ self._bands, _LEAST)
        return np.log(energies).astype(np.float32), samples[count * SHIFT_SAMPLES :]


FIRST_SAMPLES = _BEFORE
"""How many samples it takes to mirror them before the beginning."""


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
