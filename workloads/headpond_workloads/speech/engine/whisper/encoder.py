"""Whisper's encoder, over utterances of any lengths without padding them to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv1d, gelu, layer_norm, linear

from headpond_workloads.speech.engine.whisper.weights import Affine, Stack, WhisperWeights


def normed(rows: Tensor, norm: Affine) -> Tensor:
    """Normalise each row; rows and norms are in float32, whatever products are computed in."""
    return layer_norm(rows, norm.bias.shape, norm.weight, norm.bias)


def product(rows: Tensor, affine: Affine) -> Tensor:
    """Multiply rows by a weight and add its bias, in the dtype of the weight."""
    return linear(rows.to(affine.weight.dtype), affine.weight, affine.bias)


def attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attend to everything; torch's own kernels take three to seven times as long here."""
    scores = (query * query.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
    attended: Tensor = scores.softmax(-1) @ values
    return attended


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """What the encoder makes of nothing, for as long as it hears.

    Attributes:
        keys: By layer, [heads, rows, head width].
        values: Likewise.
        rows: What comes out, [rows, width].
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    rows: Tensor


class Encoder:
    """Computes what the decoder attends to.

    The model was trained on half a minute of sound, with silence after what is said, and
    errs without. That silence is computed once: an utterance's rows attend to it, and cost
    nothing but that.
    """

    def __init__(self, weights: WhisperWeights, heads: int, silence: Tensor) -> None:
        """Keep the weights, which are on the device and in the dtype to compute in.

        Args:
            weights: The model's.
            heads: Of attention.
            silence: The features of nothing, for as long as the model hears.
        """
        self._convolutions = weights.convolutions
        self._stack: Stack = weights.encoder
        self._heads = heads
        keys: list[Tensor] = []
        values: list[Tensor] = []
        self.silence = Silence(keys=(), values=(), rows=torch.zeros(0))
        rows = self._computed([silence], keys, values)
        self.silence = Silence(keys=tuple(keys), values=tuple(values), rows=rows)

    def __call__(self, features: Sequence[Tensor]) -> Tensor:
        """Encode utterances together.

        Args:
            features: Of each, [bands, frames], frames even.

        Returns:
            The rows of all of them, one utterance after the other, [rows, width]: half as
            many as frames.
        """
        return self._computed(features, None, None)

    def _computed(
        self,
        features: Sequence[Tensor],
        keys: list[Tensor] | None,
        values: list[Tensor] | None,
    ) -> Tensor:
        fronts = [self._front(each) for each in features]
        lengths = [len(front) for front in fronts]
        rows = torch.cat(fronts)
        for number, layer in enumerate(self._stack.layers):
            qkv = product(normed(rows, layer.norm), layer.qkv)
            if keys is not None and values is not None:
                _, key, value = self._by_head(qkv)
                keys.append(key[0].contiguous())
                values.append(value[0].contiguous())
            rows = rows + product(self._attended(qkv, lengths, number), layer.output)
            inner = gelu(product(normed(rows, layer.inner_norm), layer.up))
            rows = rows + product(inner, layer.down)
        return normed(rows, self._stack.norm)

    def _front(self, features: Tensor) -> Tensor:
        first, second = self._convolutions
        features = features.to(first.weight.dtype)
        rows = gelu(conv1d(features[None], first.weight, first.bias, padding=1))
        rows = gelu(conv1d(rows, second.weight, second.bias, padding=1, stride=2))[0].T
        return rows + self._stack.positions[: len(rows)]

    def _attended(self, qkv: Tensor, lengths: Sequence[int], layer: int) -> Tensor:
        """Attend within each utterance and to the silence after it."""
        width = qkv.shape[1] // 3
        found = qkv.new_empty((len(qkv), width))
        begin = 0
        for length in lengths:
            query, key, value = self._by_head(qkv[begin : begin + length])
            if self.silence.keys:
                key = torch.cat((key, self.silence.keys[layer][None, :, length:]), 2)
                value = torch.cat((value, self.silence.values[layer][None, :, length:]), 2)
            attended = attention(query, key, value)
            found[begin : begin + length] = attended[0].transpose(0, 1).reshape(length, width)
            begin += length
        return found

    def _by_head(self, qkv: Tensor) -> Sequence[Tensor]:
        """Split [rows, 3 * width] into query, key and value, [1, heads, rows, head width]."""
        split = qkv.view(1, len(qkv), 3, self._heads, -1)
        return split.permute(2, 0, 3, 1, 4).unbind()
