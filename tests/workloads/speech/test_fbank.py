"""Filter banks against kaldi's own, and however sound is cut."""

from __future__ import annotations

import kaldi_native_fbank as knf  # type: ignore[import-untyped]
import numpy as np

from headpond_workloads.speech.engine.streaming.fbank import (
    FIRST_SAMPLES,
    SHIFT_SAMPLES,
    SILENT_SAMPLES,
    Fbank,
)
from workloads.speech.conftest import RATE_HZ, noise


def test_frames_equal_those_that_sherpa_onnx_computes() -> None:
    options = knf.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = 80
    options.mel_opts.high_freq = -400
    theirs = knf.OnlineFbank(options)
    sound = noise(1.0, seed=1)
    theirs.accept_waveform(RATE_HZ, sound.tolist())
    expected = np.stack([theirs.get_frame(at) for at in range(theirs.num_frames_ready)])

    fbank = Fbank()
    (found,) = fbank.frames([fbank.begin(sound)])
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_frames_are_the_same_to_the_bit_however_sound_is_cut() -> None:
    sound = noise(1.0, seed=2)
    fbank = Fbank()
    (expected,) = fbank.frames([fbank.begin(sound)])
    rest = fbank.begin(sound[:FIRST_SAMPLES])
    found = []
    for at in range(FIRST_SAMPLES, len(sound), 333):
        rest = np.concatenate((rest, sound[at : at + 333]))
        # Another stream of another length goes first, or a short one that has no frame.
        others = noise(0.5, seed=at)[: at % 4000]
        _, frames = fbank.frames([others, rest])
        found.append(frames)
        rest = rest[len(frames) * SHIFT_SAMPLES :]
    assert np.array_equal(np.concatenate(found), expected)


def test_silence_is_what_samples_that_are_0_make() -> None:
    fbank = Fbank()
    sound = np.concatenate((noise(0.1, seed=3), np.zeros(SILENT_SAMPLES + 800, np.float32)))
    (frames,) = fbank.frames([sound])
    assert np.array_equal(frames[-5:], fbank.silence(5))
    assert not np.array_equal(frames[-10:], fbank.silence(10))
