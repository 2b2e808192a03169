"""An encoder's weights as the native encoder wants them."""

from __future__ import annotations

from ctypes import POINTER, cast

import torch
from torch import Tensor

from headpond_workloads.encoders.config import EncoderConfig
from headpond_workloads.encoders.native.structures import Layer, Model, Norm
from headpond_workloads.encoders.weights import Affine, EncoderWeights, LayerWeights
from headpond_workloads.native.library import NativeUnavailable
from headpond_workloads.native.memory import Arena
from headpond_workloads.native.packing import Format, Weights, pack
from headpond_workloads.native.structures import Matrix

_WIDTHS = range(32, 257, 32)


class NativeWeights:
    """Weights, packed; the tensors they came from are not needed any more."""

    def __init__(self, config: EncoderConfig, weights: EncoderWeights, kind: Format) -> None:
        """Pack an encoder, its products in the format `kind`.

        Raises:
            NativeUnavailable: It is none that the native encoder computes.
        """
        check_supported(config)
        self._kept: list[Tensor | Weights] = []
        self._arena = Arena()
        self._kind = kind
        self._layers = (Layer * config.layers)(*map(self._layer, weights.layers))
        exact = kind is Format.FLOAT32
        words = weights.words if exact else weights.words.to(torch.bfloat16)
        self.structure = Model(
            layers=config.layers,
            hidden=config.hidden,
            heads=config.heads,
            intermediate=config.intermediate,
            epsilon=config.epsilon,
            words_bf16=int(not exact),
            layer=cast(self._layers, POINTER(Layer)),
            words=self._keep(words),
            positions=self._keep(weights.positions),
            types=self._keep(weights.types),
            norm=self._norm(weights.norm),
        )

    def _layer(self, layer: LayerWeights) -> Layer:
        return Layer(
            qkv=self._pack(layer.query, layer.key, layer.value),
            output=self._pack(layer.output),
            up=self._pack(layer.up),
            down=self._pack(layer.down),
            attention_norm=self._norm(layer.attention_norm),
            output_norm=self._norm(layer.output_norm),
        )

    def _pack(self, *parts: Affine) -> Matrix:
        packed = pack(
            [each.weight.numpy() for each in parts],
            self._kind,
            [each.bias.numpy() for each in parts],
            arena=self._arena,
        )
        self._kept += packed.arrays
        return packed.matrix

    def _norm(self, norm: Affine) -> Norm:
        return Norm(weight=self._keep(norm.weight), bias=self._keep(norm.bias))

    def _keep(self, tensor: Tensor) -> int:
        kept = tensor.clone(memory_format=torch.contiguous_format)
        self._kept.append(kept)
        return kept.data_ptr()


def check_supported(config: EncoderConfig) -> None:
    """Refuse what the native encoder does not compute.

    Raises:
        NativeUnavailable: Says what.
    """
    width = config.hidden // config.heads
    if config.activation != "gelu":
        raise NativeUnavailable(f"its activation is {config.activation}, not gelu")
    if width not in _WIDTHS:
        raise NativeUnavailable(f"its heads are {width} wide")
    if config.intermediate % 32:
        raise NativeUnavailable(f"its layers are {config.intermediate} wide, no multiple of 32")
