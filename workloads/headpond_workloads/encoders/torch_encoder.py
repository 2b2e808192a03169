"""The forward in tensor operations, for GPUs and for machines without a compiler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, relu, scaled_dot_product_attention

from headpond.errors import EngineFailed
from headpond_workloads.encoders.config import Activation, EncoderConfig
from headpond_workloads.encoders.tokens import Floats, Ints, Tokens, starts
from headpond_workloads.encoders.weights import Affine, EncoderWeights, LayerWeights

_BATCH_TOKENS = {"cpu": 128, "cuda": 16_384}


def activated(rows: Tensor, activation: Activation) -> Tensor:
    """Compute what is between the two products of a layer's second half."""
    if activation == "relu":
        return relu(rows)
    return gelu(rows, approximate="none" if activation == "gelu" else "tanh")


class TorchEncoder:
    """Computes products without padding; only attention fills short sequences up."""

    def __init__(
        self,
        config: EncoderConfig,
        weights: EncoderWeights,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Move an encoder to a device."""
        self._config = config
        self._device = device

        def moved(affine: Affine) -> Affine:
            return Affine(
                weight=affine.weight.to(device, dtype), bias=affine.bias.to(device, dtype)
            )

        self._words, self._positions, self._types = (
            table.to(device, dtype) for table in (weights.words, weights.positions, weights.types)
        )
        self._norm = moved(weights.norm)
        self._layers = tuple(
            LayerWeights(**{name: moved(each) for name, each in vars(layer).items()})
            for layer in weights.layers
        )
        self._qkv = tuple(
            Affine(
                weight=torch.cat([each.weight for each in (at.query, at.key, at.value)]),
                bias=torch.cat([each.bias for each in (at.query, at.key, at.value)]),
            )
            for at in self._layers
        )
        self.weight_bytes = weights.bytes(dtype, None)
        self.batch_tokens = _BATCH_TOKENS[device.type]
        self.lanes = 1  # torch's own threads share the work of one batch
        self.express_lanes = 0
        self.padded_tokens = 0

    def key(self, tokens: int) -> tuple[int, ...]:
        """Return nothing: any sequences share a batch."""
        del tokens
        return ()

    def encode(self, sequences: Sequence[Tokens], *, first_only: bool = False) -> Floats:
        """Compute a batch; see `Encoder`."""
        begin = starts(sequences)
        try:
            with torch.inference_mode():
                rows = self._forward(sequences, begin)
                if first_only:
                    rows = rows[self._moved(begin[:-1])]
                found: Floats = rows.float().cpu().numpy()
        except torch.OutOfMemoryError:
            raise EngineFailed("there is not enough memory for the batch") from None
        return found

    def _forward(self, sequences: Sequence[Tokens], begin: Ints) -> Tensor:
        lengths = np.diff(begin)
        at = self._moved(np.concatenate([np.arange(length) for length in lengths]))
        token_ids = self._moved(np.concatenate([each.token_ids for each in sequences]))
        type_ids = self._moved(np.concatenate([each.type_ids for each in sequences]))
        rows = self._words[token_ids] + self._types[type_ids] + self._positions[at]
        rows = self._normalized(rows, self._norm)
        # Where each place of a padded batch finds its row, and which places there are.
        places = np.arange(lengths.max())
        present = places < lengths[:, None]
        grid = self._moved(np.where(present, begin[:-1, None] + places, 0))
        mask = None if present.all() else torch.from_numpy(present).to(self._device)
        for layer, qkv in zip(self._layers, self._qkv, strict=True):
            attended = self._attended(linear(rows, qkv.weight, qkv.bias), grid, mask)
            output = linear(attended, layer.output.weight, layer.output.bias)
            rows = self._normalized(rows + output, layer.attention_norm)
            up = linear(rows, layer.up.weight, layer.up.bias)
            inner = activated(up, self._config.activation)
            down = linear(inner, layer.down.weight, layer.down.bias)
            rows = self._normalized(rows + down, layer.output_norm)
        return rows

    def _attended(self, qkv: Tensor, grid: Tensor, mask: Tensor | None) -> Tensor:
        sequences, longest = grid.shape
        padded = qkv[grid].view(sequences, longest, 3, self._config.heads, -1)
        query, key, value = padded.permute(2, 0, 3, 1, 4)
        seen = None if mask is None else mask[:, None, None, :]
        attended = scaled_dot_product_attention(query, key, value, attn_mask=seen)
        rows = attended.transpose(1, 2).reshape(sequences, longest, -1)
        return rows.flatten(0, 1) if mask is None else rows[mask]

    def _normalized(self, rows: Tensor, norm: Affine) -> Tensor:
        return layer_norm(
            rows, (self._config.hidden,), norm.weight, norm.bias, self._config.epsilon
        )

    def _moved(self, numbers: Ints) -> Tensor:
        return torch.from_numpy(numbers).long().to(self._device)
