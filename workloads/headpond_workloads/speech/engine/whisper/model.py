"""A Whisper model as a whole, in the dtype and on the threads it computes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from headpond_workloads.speech.engine.recogniser import Samples
from headpond_workloads.speech.engine.whisper.alignment import token_times
from headpond_workloads.speech.engine.whisper.decoder import Decoder
from headpond_workloads.speech.engine.whisper.encoder import Encoder
from headpond_workloads.speech.engine.whisper.greedy import Controls, Greedy, Task, Written
from headpond_workloads.speech.engine.whisper.mel import FRAME_SAMPLES, RATE_HZ, Mel
from headpond_workloads.speech.engine.whisper.weights import (
    Affine,
    Layer,
    Stack,
    WhisperWeights,
)

ROW_SAMPLES = 2 * FRAME_SAMPLES
"""The encoder gives a row for so many samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """What the weights don't say of themselves.

    Attributes:
        heads: Of attention, in each layer.
        controls: Tokens that mean something.
        alignment_heads: Layer and head of those that follow the sound.
    """

    heads: int
    controls: Controls
    alignment_heads: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """Utterances that are encoded.

    Attributes:
        rows: One utterance after the other.
        lengths: Rows of each.
    """

    rows: Tensor
    lengths: Sequence[int]


class WhisperModel:
    """Hears samples and writes text."""

    def __init__(
        self, weights: WhisperWeights, architecture: Architecture, dtype: torch.dtype
    ) -> None:
        """Convert the weights to the dtype of products."""
        self.bands = weights.convolutions[0].weight.shape[1]
        self.vocab_tokens = len(weights.tokens)
        self.places = len(weights.decoder.positions)
        self.longest_samples = len(weights.encoder.positions) * ROW_SAMPLES
        weights = _converted(weights, dtype)
        self.weight_bytes = _bytes(weights)
        self._mel = Mel(self.bands)
        with torch.inference_mode():
            frames = 2 * len(weights.encoder.positions)
            self._encoder = Encoder(weights, architecture.heads, self._mel.silence(frames))
            silence = self._encoder.silence.rows
            self._decoder = Decoder(weights, architecture.heads, silence)
        self._greedy = Greedy(self._decoder, architecture.controls, self.vocab_tokens)
        self._alignment_heads = architecture.alignment_heads
        self._end = architecture.controls.end

    def encode(self, utterances: Sequence[Samples]) -> Encoded:
        """Encode utterances, each at most as long as the model hears."""
        lengths = [-(-len(samples) // ROW_SAMPLES) for samples in utterances]
        rows = self._encoder(
            [
                self._mel.features(samples, length * ROW_SAMPLES)
                for samples, length in zip(utterances, lengths, strict=True)
            ]
        )
        return Encoded(rows=rows, lengths=lengths)

    def write(self, tasks: Sequence[Task], encoded: Encoded) -> list[Written]:
        """Write down what was encoded."""
        return self._greedy.write(tasks, encoded.rows, encoded.lengths)

    def pick(self, encoded: Encoded, which: Sequence[int]) -> Encoded:
        """Return some of the utterances."""
        parts = torch.split(encoded.rows, list(encoded.lengths))
        return Encoded(
            rows=torch.cat([parts[each] for each in which]),
            lengths=[encoded.lengths[each] for each in which],
        )

    def times(self, encoded: Encoded, prompt: Sequence[int], text: Sequence[int]) -> list[float]:
        """Return when each token of one utterance begins, and when the last ends, in seconds."""
        token_ids = torch.tensor([[*prompt, *text, self._end]])
        attended = self._decoder.attend(encoded.rows, encoded.lengths, token_ids.shape[1] + 1)
        scores = self._decoder.cross_weights(token_ids, attended, self._alignment_heads)[0]
        return token_times(scores[:, len(prompt) - 1 : -1], encoded.lengths[0])


def _converted(weights: WhisperWeights, dtype: torch.dtype) -> WhisperWeights:
    """Convert what is multiplied; norms and positions stay in float32."""

    def affine(each: Affine) -> Affine:
        return Affine(weight=each.weight.to(dtype).contiguous(), bias=each.bias.to(dtype))

    def layer(each: Layer) -> Layer:
        parts = {part.name: getattr(each, part.name) for part in fields(each)}
        products = {
            name: affine(part)
            for name, part in parts.items()
            if isinstance(part, Affine) and not name.endswith("norm")
        }
        return replace(each, **products)

    def stack(each: Stack) -> Stack:
        return replace(each, layers=tuple(map(layer, each.layers)))

    first, second = weights.convolutions
    return WhisperWeights(
        convolutions=(affine(first), affine(second)),
        encoder=stack(weights.encoder),
        decoder=stack(weights.decoder),
        tokens=weights.tokens.to(dtype),
    )


def _bytes(weights: WhisperWeights) -> int:
    affines = list(weights.convolutions)
    tensors = [weights.tokens]
    for stack in (weights.encoder, weights.decoder):
        affines.append(stack.norm)
        tensors.append(stack.positions)
        for layer in stack.layers:
            parts = [getattr(layer, part.name) for part in fields(layer)]
            affines += [part for part in parts if isinstance(part, Affine)]
    tensors += [tensor for each in affines for tensor in (each.weight, each.bias)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


__all__ = ["RATE_HZ", "ROW_SAMPLES", "Architecture", "Encoded", "WhisperModel"]
