"""Synthetic voices (Debian's espeak-ng and flite), and what rooms and lines do to them."""

from __future__ import annotations

import io
import random
import subprocess
import wave
from dataclasses import dataclass

import numpy as np
import soxr
from numpy.typing import NDArray

RATE_HZ = 16_000

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Voice:
    """One speaker of one program."""

    program: str
    name: str


TRAINING = (
    *(Voice("flite", name) for name in ("kal", "kal16", "awb", "rms")),
    *(
        Voice("espeak-ng", f"{accent}{variant}")
        for accent in ("en-us", "en-gb", "en-gb-x-rp", "en-us-nyc")
        for variant in ("", "+m1", "+m3", "+m7", "+f1", "+f2", "+f4", "+klatt2")
    ),
)
HELD_OUT = (
    Voice("flite", "slt"),
    *(Voice("espeak-ng", name) for name in ("en-gb-scotland+f3", "en-029+m5", "en-gb-x-gbclan+f5")),
)


def choose(voices: tuple[Voice, ...], rng: random.Random) -> Voice:
    """Return a voice; those of flite, which sound more like people, as often as the others."""
    programs = sorted({voice.program for voice in voices})
    program = rng.choice(programs)
    return rng.choice([voice for voice in voices if voice.program == program])


def speak(words: list[str], voice: Voice, rng: random.Random) -> Samples:
    """Return what a voice makes of some words, mono at `RATE_HZ`."""
    text = " ".join(words)
    if voice.program == "flite":
        stretch = rng.uniform(0.8, 1.25)
        command = ["flite", "-voice", voice.name, "--setf", f"duration_stretch={stretch:.2f}"]
        command += ["-t", text, "-o", "/dev/stdout"]
    else:
        speed, pitch = rng.randint(120, 210), rng.randint(25, 75)
        command = ["espeak-ng", "-v", voice.name, "-s", str(speed), "-p", str(pitch), "--stdout"]
        command.append(text)
    spoken = subprocess.run(command, capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(spoken)) as file:
        rate_hz = file.getframerate()
    at = spoken.index(b"data") + 8  # both write a length of their own into a stream's header
    samples = np.frombuffer(spoken[at : len(spoken) - (len(spoken) - at) % 2], np.int16)
    spoken_here: Samples = soxr.resample(samples.astype(np.float32) / 32_768.0, rate_hz, RATE_HZ)
    return spoken_here


def disturb(samples: Samples, rng: np.random.Generator) -> Samples:
    """Return the same words in another throat, room and noise."""
    speed = rng.uniform(0.85, 1.18)
    samples = soxr.resample(samples, RATE_HZ, RATE_HZ / speed)
    if rng.random() < 0.5:
        tail_s = rng.uniform(0.05, 0.3)
        length = int(RATE_HZ * tail_s)
        room = rng.standard_normal(length) * np.exp(-6.0 * np.arange(length) / length)
        room = room * rng.uniform(0.01, 0.06)
        room[0] = 1.0
        samples = np.convolve(samples, room.astype(np.float32))
    if rng.random() < 0.3:
        narrow_hz = int(rng.choice([7_000, 8_000, 11_025]))
        samples = soxr.resample(soxr.resample(samples, RATE_HZ, narrow_hz), narrow_hz, RATE_HZ)
    if rng.random() < 0.5:
        tilt = rng.uniform(-0.6, 0.6)
        samples = (samples + tilt * np.concatenate([[0.0], samples[:-1]])).astype(np.float32)
    before, after = (int(RATE_HZ * rng.uniform(0.15, 0.8)) for _ in range(2))
    samples = np.pad(samples, (before, after))
    level = 10.0 ** rng.uniform(-1.6, -0.1)
    samples = samples * (level / max(float(np.abs(samples).max()), 1e-4))
    snr_db = rng.uniform(6.0, 40.0)
    return add_noise(samples.astype(np.float32), snr_db, rng)


def add_noise(samples: Samples, snr_db: float, rng: np.random.Generator) -> Samples:
    """Return samples under noise of a random colour."""
    noise = rng.standard_normal(len(samples)).astype(np.float32)
    colour = rng.uniform(0.0, 0.95)
    spectrum = np.fft.rfft(noise)
    spectrum /= np.abs(1.0 - colour * np.exp(-1j * np.linspace(0.0, np.pi, len(spectrum))))
    noise = np.fft.irfft(spectrum, len(samples)).astype(np.float32)
    power = float(np.mean(samples**2)) + 1e-9
    noise *= np.sqrt(power / 10.0 ** (snr_db / 10.0) / max(float(np.mean(noise**2)), 1e-12))
    noisy: Samples = np.clip(samples + noise, -1.0, 1.0).astype(np.float32)
    return noisy
