"""Log-mel features as kaldi and sherpa-onnx compute them from a stream."""

from __future__ import annotations

import kaldi_native_fbank as knf
import numpy as np

from voices import RATE_HZ, Samples

BINS = 80
FRAMES_PER_S = 100


def options() -> knf.FbankOptions:
    """Return the settings of an online recogniser of sherpa-onnx."""
    settings = knf.FbankOptions()
    settings.frame_opts.dither = 0
    settings.frame_opts.snip_edges = False
    settings.frame_opts.samp_freq = RATE_HZ
    settings.mel_opts.num_bins = BINS
    settings.mel_opts.high_freq = -400
    return settings


def fbank(samples: Samples) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return features [frames, BINS], as if the samples had come in a stream that ended."""
    stream = knf.OnlineFbank(options())
    stream.accept_waveform(RATE_HZ, samples.tolist())
    stream.input_finished()
    return np.stack([stream.get_frame(at) for at in range(stream.num_frames_ready)])
