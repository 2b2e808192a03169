"""What Whisper hears: the logarithm of the power in 80 bands, a hundred times a second."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from transformers.audio_utils import mel_filter_bank

RATE_HZ = 16_000
FRAME_SAMPLES = 160
_WINDOW_SAMPLES = 400
_LEAST_POWER = 1e-10
_LOUDEST, _RANGE = 1.5, 8.0
_SILENCE = (_LOUDEST - _RANGE + 4.0) / 4.0

Samples = NDArray[np.float32]


class Mel:
    """Computes the model's features, as OpenAI's code does."""

    def __init__(self, bands: int) -> None:
        """Prepare the bands: 80, or 128 in the largest models."""
        self._window = torch.hann_window(_WINDOW_SAMPLES)
        bank = mel_filter_bank(
            num_frequency_bins=_WINDOW_SAMPLES // 2 + 1,
            num_mel_filters=bands,
            min_frequency=0.0,
            max_frequency=RATE_HZ / 2,
            sampling_rate=RATE_HZ,
            norm="slaney",
            mel_scale="slaney",
        )
        self._bank = torch.from_numpy(np.ascontiguousarray(bank.T, dtype=np.float32))

    def silence(self, frames: int) -> Tensor:
        """Return the features of nothing, [bands, frames]."""
        return torch.full((len(self._bank), frames), _SILENCE)

    def features(self, samples: Samples, filled_to: int) -> Tensor:
        """Return the features of an utterance, [bands, frames].

        Utterances are made equally loud, so that silence is the same in all of them.

        Args:
            samples: At 16 kHz.
            filled_to: How many samples there are with silence after them: a multiple of two
                frames.
        """
        sound = pad(torch.from_numpy(samples), (0, filled_to - len(samples)))
        spectrum = torch.stft(
            sound,
            _WINDOW_SAMPLES,
            FRAME_SAMPLES,
            window=self._window,
            return_complex=True,
        )
        power = torch.view_as_real(spectrum[:, :-1]).square().sum(-1)
        bands = (self._bank @ power).clamp(min=_LEAST_POWER).log10()
        bands = (bands + (_LOUDEST - bands.max())).clamp(min=_LOUDEST - _RANGE)
        return (bands + 4.0) / 4.0
