"""Silero VAD: how likely each window of 32 ms holds speech, for many streams at once.

The model is a file of the bundle. Its batched results equal those of single streams bit
for bit (a test says so), so that decisions never depend on who else is talking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as onnx_errors  # type: ignore[import-untyped]

from headpond.errors import BundleError
from headpond_workloads.speech.engine.front.endpointing import WINDOW_MS
from headpond_workloads.speech.engine.front.pcm import Samples

_CONTEXT = {8_000: 32, 16_000: 64}
"""How many samples of the window before the model wants, by its rate."""

_UNITS = 128
_UNUSABLE = (
    onnx_errors.Fail,
    onnx_errors.InvalidGraph,
    onnx_errors.InvalidProtobuf,
    onnx_errors.NoSuchFile,
    RuntimeError,
)
"""What ONNX Runtime raises for a file that it can't use; its own classes share no base."""

_NOTHING = np.zeros(0, np.float32)


@dataclass(slots=True)
class VoiceState:
    """One stream between two windows; changed by `Voice.probabilities` alone.

    Attributes:
        memory: The network's own state, float32 of shape `(2, 128)`.
        context: The end of the window before.
        rest: Samples that fill no window yet.
    """

    memory: NDArray[np.float32]
    context: Samples
    rest: Samples = field(default_factory=lambda: _NOTHING)


class Voice:
    """The network, shared by all streams of an engine."""

    def __init__(self, path: Path, rate_hz: int) -> None:
        """Load the network for samples at `rate_hz`.

        Raises:
            BundleError: The file is no such network, or it does not know the rate.
        """
        if rate_hz not in _CONTEXT:
            raise BundleError(
                f"voice activity is heard at {sorted(_CONTEXT)} Hz, not at {rate_hz}",
                param="rate_hz",
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        except _UNUSABLE as error:
            raise BundleError(f"{path.name} is no network: {error}", param="artifacts") from error
        names = {each.name for each in self._session.get_inputs()}
        if names != {"input", "state", "sr"}:
            raise BundleError(f"{path.name} is no network of silero's", param="artifacts")
        self._rate_hz = np.array(rate_hz, np.int64)
        self._window = rate_hz * WINDOW_MS // 1000
        self._context = _CONTEXT[rate_hz]

    def initial(self) -> VoiceState:
        """Return the state of a stream that begins, or begins anew."""
        return VoiceState(
            memory=np.zeros((2, _UNITS), np.float32),
            context=np.zeros(self._context, np.float32),
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
        counts = [len(sound) // self._window for sound in sounds]
        found: list[list[float]] = [[] for _ in states]
        for at in range(max(counts, default=0)):
            rows = [row for row, count in enumerate(counts) if at < count]
            windows = [sounds[row][at * self._window : (at + 1) * self._window] for row in rows]
            heard = self._forward(windows, [states[row] for row in rows])
            for row, probability in zip(rows, heard, strict=True):
                found[row].append(probability)
        for state, sound, count in zip(states, sounds, counts, strict=True):
            state.rest = sound[count * self._window :].copy()
        return found

    def _forward(self, windows: list[Samples], states: list[VoiceState]) -> list[float]:
        inputs = np.concatenate(
            [np.stack([state.context for state in states]), np.stack(windows)], axis=1
        )
        memory = np.stack([state.memory for state in states], axis=1)
        fed = {"input": inputs, "state": memory, "sr": self._rate_hz}
        output, after = self._session.run(["output", "stateN"], fed)
        for row, state in enumerate(states):
            state.memory = after[:, row]
            state.context = inputs[row, -self._context :]
        probabilities: list[float] = output[:, 0].tolist()
        return probabilities
