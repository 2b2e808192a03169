"""Silero VAD over many streams: nobody hears who else is talking."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.errors import BundleError
from headpond_workloads.speech.engine.front.pcm import Samples
from headpond_workloads.speech.engine.front.voice import Voice

WINDOW, CONTEXT = 512, 64


@pytest.fixture(scope="module")
def data() -> Path:
    spec = find_spec("silero_vad")  # found, not imported: its import wants torchaudio
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "data"


@pytest.fixture(scope="module")
def voice(data: Path) -> Voice:
    return Voice(data / "silero_vad_16k_sequence.onnx", 16_000)


def vowel(seed: int, samples: int) -> Samples:
    """Return something like a vowel with pauses: pulses through two resonances."""
    random = np.random.default_rng(seed)
    pitch = 100 + 20 * seed % 100
    pulses = (np.arange(samples) % (16_000 // pitch) == 0).astype(np.float64)
    spectrum = np.fft.rfft(pulses)
    hertz = np.fft.rfftfreq(samples, 1 / 16_000)
    shape = sum(1 / (1 + ((hertz - peak) / 90) ** 2) for peak in (700, 1200, 2600))
    sound = np.fft.irfft(spectrum * shape, samples)
    talking = np.sin(2 * np.pi * np.arange(samples) / 24_000 + seed) > -0.3
    noise = 0.003 * random.standard_normal(samples)
    heard: Samples = (sound / np.abs(sound).max() * 0.5 * talking + noise).astype(np.float32)
    return heard


def alone(voice: Voice, sound: Samples) -> list[float]:
    (found,) = voice.probabilities([sound], [voice.initial()])
    return found


def test_it_hears_what_silero_hears(voice: Voice, data: Path) -> None:
    theirs = onnxruntime.InferenceSession(data / "silero_vad.onnx")
    sound = vowel(3, WINDOW * 60)
    state = np.zeros((2, 1, 128), np.float32)
    padded = np.concatenate((np.zeros(CONTEXT, np.float32), sound))
    expected = []
    for at in range(0, len(sound), WINDOW):
        window = padded[None, at : at + CONTEXT + WINDOW]
        output, state = theirs.run(None, {"input": window, "state": state, "sr": np.array(16_000)})
        expected.append(float(output[0, 0]))
    assert max(expected) > 0.5 > min(expected)
    assert alone(voice, sound) == pytest.approx(expected, abs=1e-5)


def test_batched_is_single_bit_for_bit(voice: Voice) -> None:
    sounds = [vowel(seed, 16_000 * 2) for seed in range(7)]
    together = voice.probabilities(sounds, [voice.initial() for _ in sounds])
    assert together == [alone(voice, sound) for sound in sounds]
    assert len(together[0]) == 32_000 // WINDOW
    assert all(0 <= each <= 1 for found in together for each in found)


def test_it_tells_voice_from_silence_and_noise(voice: Voice) -> None:
    assert max(alone(voice, np.zeros(16_000, np.float32))) < 0.2
    noise = np.random.default_rng(1).standard_normal(16_000).astype(np.float32) * 0.05
    assert max(alone(voice, noise)) < 0.5
    assert max(alone(voice, vowel(1, 32_000))) > 0.5


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(0, 1500), min_size=1, max_size=6), min_size=1, max_size=5))
def test_neither_cuts_nor_company_matter(voice: Voice, lengths: Sequence[Sequence[int]]) -> None:
    """Streams of any age share steps, each with pieces of its own lengths."""
    sounds = [vowel(seed, max(sum(cuts), 1)) for seed, cuts in enumerate(lengths)]
    states = [voice.initial() for _ in lengths]
    found: list[list[float]] = [[] for _ in lengths]
    at = [0] * len(lengths)
    for step in range(max(map(len, lengths))):
        rows = [row for row, cuts in enumerate(lengths) if step < len(cuts)]
        chunks = [sounds[row][at[row] : at[row] + lengths[row][step]] for row in rows]
        heard = voice.probabilities(chunks, [states[row] for row in rows])
        for row, probabilities in zip(rows, heard, strict=True):
            found[row] += probabilities
            at[row] += lengths[row][step]
    for sound, cuts, probabilities in zip(sounds, lengths, found, strict=True):
        assert probabilities == alone(voice, sound[: sum(cuts)])


def test_other_rates_and_files_are_refused(data: Path, tmp_path: Path) -> None:
    for rate_hz in (8_000, 44_100):
        with pytest.raises(BundleError, match=f"not at {rate_hz}"):
            Voice(data / "silero_vad_16k_sequence.onnx", rate_hz)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no weights")
    with pytest.raises(BundleError, match="no weights"):
        Voice(broken, 16_000)
    with pytest.raises(BundleError):
        Voice(tmp_path / "absent.onnx", 16_000)
    with pytest.raises(BundleError, match="no weights"):
        Voice(data / "silero_vad_half.onnx", 16_000)
