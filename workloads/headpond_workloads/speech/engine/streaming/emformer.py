"""torchaudio's Emformer RNN-T: an encoder with memory, an LSTM predictor, a joiner."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torchaudio.models.rnnt import (  # type: ignore[import-untyped]
    RNNT,
    emformer_rnnt_model,
)

from headpond.errors import BundleError
from headpond_workloads.speech.engine.streaming.fbank import BANDS
from headpond_workloads.speech.engine.streaming.network import Cache, Floats

_STATE_TENSORS = 4
_AGE = 3  # the tensor of a layer's state that counts what it has heard


@dataclass(frozen=True, kw_only=True, slots=True)
class Emformer:
    """A loaded model.

    Attributes:
        model: The modules.
        segment: Frames that it goes on by.
        lookahead: Frames after these that it also hears.
        stride: Frames for each row.
        oldest: Rows after which older streams are all alike.
        blank: The last token: nothing is said.
    """

    model: RNNT
    segment: int
    lookahead: int
    stride: int
    oldest: int
    blank: int

    @property
    def weight_bytes(self) -> int:
        """What its weights take."""
        return sum(each.numel() * each.element_size() for each in self.model.parameters())


def load_emformer(weights: Path, config: Path) -> Emformer:
    """Build a model.

    Args:
        weights: safetensors, named as torchaudio names them.
        config: JSON: the arguments of `torchaudio.models.emformer_rnnt_model`.

    Raises:
        BundleError: They don't fit together.
    """
    try:
        given = json.loads(config.read_bytes())
        model = emformer_rnnt_model(**given)
        model.load_state_dict(load_file(weights))
    except (TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise BundleError(f"the model can't be built: {error}", param="artifacts.weights") from None
    if given["input_dim"] != BANDS:
        raise BundleError(f"the model should hear {BANDS} bands", param="input.config")
    stride = given["time_reduction_stride"]
    rows = given["segment_length"] // stride
    memory = given["transformer_max_memory_size"] * rows
    return Emformer(
        model=model.eval(),
        segment=given["segment_length"],
        lookahead=given["right_context_length"],
        stride=stride,
        oldest=max(given["transformer_left_context_length"], memory),
        blank=given["num_symbols"] - 1,
    )


class EmformerEncoder:
    """Encodes streams of equal age together.

    The model reads how much a stream has heard from the first stream of a batch only, and so
    is silently wrong for others that are younger or older. Streams whose memory is full are
    alike, so that few groups are left a second or two after streams began.
    """

    def __init__(self, emformer: Emformer) -> None:
        """Learn the shapes of a stream's state."""
        self._emformer = emformer
        self.frames = emformer.segment + emformer.lookahead
        self.shift = emformer.segment
        self.subsampling = emformer.stride
        frames = torch.zeros(1, self.frames, BANDS)
        with torch.inference_mode():
            _, _, states = emformer.model.transcribe_streaming(
                frames, torch.tensor([self.frames]), None
            )
        self._initial: Cache = tuple(
            np.zeros(tensor.shape, tensor.numpy().dtype) for layer in states for tensor in layer
        )
        self.cache_bytes = sum(array.nbytes for array in self._initial)

    def initial(self) -> Cache:
        """Return the cache of a stream that begins."""
        return self._initial

    def encode(self, frames: Floats, caches: Sequence[Cache]) -> tuple[Floats, list[Cache]]:
        """Encode a chunk of each stream; see `Encoder`."""
        groups: dict[int, list[int]] = {}
        for stream, cache in enumerate(caches):
            groups.setdefault(int(cache[_AGE].item()), []).append(stream)
        rows: list[Floats | None] = [None] * len(caches)
        after = list(caches)
        with torch.inference_mode():
            for streams in groups.values():
                heard, states = self._group(frames[streams], [caches[each] for each in streams])
                for at, stream in enumerate(streams):
                    rows[stream] = heard[at]
                    after[stream] = tuple(state[:, at : at + 1].copy() for state in states)
        return np.stack([each for each in rows if each is not None]), after

    def _group(self, frames: Floats, caches: Sequence[Cache]) -> tuple[Floats, list[Floats]]:
        stacked = [
            torch.from_numpy(np.concatenate(each, axis=1)) for each in zip(*caches, strict=True)
        ]
        layers = [
            stacked[at : at + _STATE_TENSORS] for at in range(0, len(stacked), _STATE_TENSORS)
        ]
        lengths = torch.full((len(caches),), self.frames)
        heard, _, states = self._emformer.model.transcribe_streaming(
            torch.from_numpy(frames), lengths, layers
        )
        for layer in states:
            layer[_AGE] = layer[_AGE].clamp(max=self._emformer.oldest)
        return heard.numpy(), [tensor.numpy() for layer in states for tensor in layer]


@dataclass(frozen=True, slots=True)
class Sayings:
    """What a stream said, as the predictor's LSTM keeps it."""

    predicted: Floats
    state: tuple[Tensor, ...]


class EmformerPredictor:
    """Knows all that was said."""

    def __init__(self, emformer: Emformer) -> None:
        """Begin as torchaudio's search does: with the blank."""
        self._model = emformer.model
        (self._initial,) = self._predicted([emformer.blank], None)

    def initial(self) -> Sayings:
        """Return what a stream begins with."""
        return self._initial

    def extended(self, said: Sequence[Sayings], token_ids: Sequence[int]) -> list[Sayings]:
        """Add a token to each."""
        stacked = [torch.cat(each) for each in zip(*[one.state for one in said], strict=True)]
        return self._predicted(
            token_ids, [stacked[at : at + 2] for at in range(0, len(stacked), 2)]
        )

    def _predicted(
        self, token_ids: Sequence[int], state: list[list[Tensor]] | None
    ) -> list[Sayings]:
        ones = torch.ones(len(token_ids), dtype=torch.long)
        with torch.inference_mode():
            rows, _, after = self._model.predict(torch.tensor(token_ids)[:, None], ones, state)
        tensors = [tensor for layer in after for tensor in layer]
        return [
            Sayings(rows[at, 0].numpy(), tuple(tensor[at : at + 1] for tensor in tensors))
            for at in range(len(token_ids))
        ]


class EmformerJoiner:
    """Makes logits of rows and predictions."""

    def __init__(self, emformer: Emformer) -> None:
        """Take a model."""
        self._model = emformer.model

    def __call__(self, rows: Floats, predicted: Floats) -> Floats:
        """Return logits, [rows, vocabulary]."""
        ones = torch.ones(len(rows), dtype=torch.long)
        with torch.inference_mode():
            logits, _, _ = self._model.join(
                torch.from_numpy(rows)[:, None], ones, torch.from_numpy(predicted)[:, None], ones
            )
        found: Floats = logits[:, 0, 0].numpy()
        return found
