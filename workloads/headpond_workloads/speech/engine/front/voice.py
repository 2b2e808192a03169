"""Silero VAD: how likely each window of 32 ms holds speech, for many streams at once.

The weights are a file of the bundle. Batched results equal those of single streams bit for
bit (a test says so), so that decisions never depend on who else is talking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headpond.errors import BundleError
from headpond_workloads.speech.engine.front.pcm import Samples
from headpond_workloads.speech.engine.front.voice_network import (
    CONTEXT,
    UNITS,
    WINDOW,
    VoiceNetwork,
)

_RATE_HZ = 16_000


@dataclass(slots=True)
class VoiceState:
    """One stream between two windows; changed by `Voice.probabilities` alone.

    Attributes:
        memory: The network's own state, float32 of shape `(2, 128)`.
        rest: The end of the window before, and samples that fill no window yet.
    """

    memory: NDArray[np.float32]
    rest: Samples


class Voice:
    """The network, shared by all streams of an engine."""

    def __init__(self, path: Path, rate_hz: int) -> None:
        """Load the network for samples at `rate_hz`.

        Args:
            path: silero's network for 16 kHz and sequences, in ONNX.
            rate_hz: The rate of all samples.

        Raises:
            BundleError: The file holds no such weights, or the network does not know the rate.
        """
        if rate_hz != _RATE_HZ:
            raise BundleError(
                f"voice activity is heard at {_RATE_HZ} Hz, not at {rate_hz}", param="rate_hz"
            )
        self._network = VoiceNetwork(path)

    def initial(self) -> VoiceState:
        """Return the state of a stream that begins, or begins anew."""
        return VoiceState(
            memory=np.zeros((2, UNITS), np.float32), rest=np.zeros(CONTEXT, np.float32)
        )

    def probabilities(
        self, chunks: Sequence[Samples], states: Sequence[VoiceState]
    ) -> list[list[float]]:
        """Return how likely speech is in each window that is complete now.

        Args:
            chunks: The next samples of each stream; any lengths.
            states: Of the same streams; they go on.
        """
        sounds = [
            np.concatenate((state.rest, chunk)) for state, chunk in zip(states, chunks, strict=True)
        ]
        counts = [(len(sound) - CONTEXT) // WINDOW for sound in sounds]
        found: list[list[float]] = [[] for _ in states]
        rows = [row for row, count in enumerate(counts) if count]
        if rows:
            lengths = [counts[row] for row in rows]
            heard, memory = self._network(
                _windows([sounds[row] for row in rows], lengths),
                lengths,
                np.stack([states[row].memory for row in rows], axis=1),
            )
            for at, (row, length) in enumerate(zip(rows, lengths, strict=True)):
                found[row] = heard[:length, at].tolist()
                states[row].memory = memory[:, at]
        for state, sound, count in zip(states, sounds, counts, strict=True):
            state.rest = sound[count * WINDOW :].copy() if count else sound
        return found


def _windows(sounds: Sequence[Samples], counts: Sequence[int]) -> Samples:
    """Return windows with what goes before each, [most windows, streams, samples]."""
    width = CONTEXT + WINDOW
    windows = np.zeros((max(counts), len(sounds), width), np.float32)
    for stream, (sound, count) in enumerate(zip(sounds, counts, strict=True)):
        strides = (WINDOW * sound.itemsize, sound.itemsize)
        windows[:count, stream] = np.ndarray((count, width), sound.dtype, sound, strides=strides)
    return windows
