"""An encoder's weights by what they are for, from a safetensors file of any family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors.torch import load_file
from torch import Tensor

from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.encoders.config import EncoderConfig, Family


@dataclass(frozen=True, kw_only=True)
class Affine:
    """A weight and a bias: of a linear layer [outputs, inputs], or of a norm [values]."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """The weights of one layer, in the order of its computing."""

    query: Affine
    key: Affine
    value: Affine
    output: Affine
    attention_norm: Affine
    up: Affine
    down: Affine
    output_norm: Affine


@dataclass(frozen=True, kw_only=True)
class EncoderWeights:
    """Everything an encoder computes with.

    Attributes:
        words: A vector for each token, [vocabulary, hidden].
        positions: A vector for each place in a sequence, the first place's first.
        types: A vector for each kind of text; zeros where the family knows none.
        norm: Of the sum of the three.
        layers: In their order.
    """

    words: Tensor
    positions: Tensor
    types: Tensor
    norm: Affine
    layers: tuple[LayerWeights, ...]

    def bytes(self, dtype: torch.dtype, quantization: str | None) -> int:
        """Return what they take in a dtype, with layers' products in one byte if quantized."""
        parts: list[Affine] = [each for layer in self.layers for each in vars(layer).values()]
        # Products have matrices, norms have vectors.
        products = sum(each.weight.numel() for each in parts if each.weight.dim() > 1)
        affines = [self.norm, *parts]
        values = sum(each.numel() for each in (self.words, self.positions, self.types))
        values += sum(each.weight.numel() + each.bias.numel() for each in affines)
        saved = 0 if quantization is None else products * (dtype.itemsize - 1)
        return values * dtype.itemsize - saved


_PRODUCTS = ("query", "key", "value", "output", "up", "down")
_BERT: Mapping[str, str] = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
_DISTILBERT: Mapping[str, str] = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "output_norm": "output_layer_norm",
}
_LAYERS: Mapping[Family, tuple[str, Mapping[str, str]]] = {
    Family.BERT: ("encoder.layer", _BERT),
    Family.ROBERTA: ("encoder.layer", _BERT),
    Family.DISTILBERT: ("transformer.layer", _DISTILBERT),
}


class WeightFile:
    """The tensors of the artifact `weights`, found by name, in float32."""

    def __init__(self, bundle: Bundle, family: Family) -> None:
        """Read the file.

        Raises:
            BundleError: There is none.
        """
        self._tensors = load_file(bundle.artifact("weights"))
        prefix = f"{family.value}."
        inner = any(name.startswith(prefix) for name in self._tensors)
        self.encoder_prefix = prefix if inner else ""

    def tensor(self, name: str, *shape: int | None) -> Tensor:
        """Return a tensor of a shape; None stands for any length.

        Raises:
            BundleError: It is not there, of another shape, or not of numbers with a fraction.
        """
        found = self._tensors.get(name)
        if found is None or not found.is_floating_point():
            raise BundleError(f"the weights lack {name}", param="artifacts.weights")
        if len(shape) != found.dim() or any(
            own not in {None, had} for own, had in zip(shape, found.shape, strict=True)
        ):
            raise BundleError(
                f"{name} is of shape {list(found.shape)}, not {list(shape)}",
                param="artifacts.weights",
            )
        return found.float()

    def affine(self, name: str, *shape: int) -> Affine:
        """Return a weight of a shape and its bias, as long as the shape's first number.

        Raises:
            BundleError: As `tensor`.
        """
        weight = self.tensor(f"{name}.weight", *shape)
        return Affine(weight=weight, bias=self.tensor(f"{name}.bias", shape[0]))


def encoder_weights(file: WeightFile, config: EncoderConfig) -> EncoderWeights:
    """Sort the weights of an encoder.

    Raises:
        BundleError: One is missing, or has another shape than the configuration says.
    """
    prefix = file.encoder_prefix
    hidden = config.hidden
    embeddings = f"{prefix}embeddings"
    words = file.tensor(f"{embeddings}.word_embeddings.weight", config.vocab_tokens, hidden)
    rows = config.first_position + config.positions
    positions = file.tensor(f"{embeddings}.position_embeddings.weight", rows, hidden)
    types = torch.zeros(2, hidden)
    if config.family is not Family.DISTILBERT:
        types = file.tensor(f"{embeddings}.token_type_embeddings.weight", None, hidden)
    return EncoderWeights(
        words=words,
        positions=positions[config.first_position :],
        types=types,
        norm=file.affine(f"{embeddings}.LayerNorm", hidden),
        layers=tuple(_layer(file, config, at) for at in range(config.layers)),
    )


def _layer(file: WeightFile, config: EncoderConfig, at: int) -> LayerWeights:
    folder, names = _LAYERS[config.family]
    hidden, inter = config.hidden, config.intermediate
    shapes = dict.fromkeys(_PRODUCTS, (hidden, hidden))
    shapes |= {"up": (inter, hidden), "down": (hidden, inter)}
    return LayerWeights(
        **{
            key: file.affine(
                f"{file.encoder_prefix}{folder}.{at}.{name}", *shapes.get(key, (hidden,))
            )
            for key, name in names.items()
        }
    )
