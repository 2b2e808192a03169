"""Whisper's weights by what they are for, from safetensors or from CTranslate2's file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headpond.errors import BundleError
from headpond_workloads.speech.engine.whisper.ct2 import read_tensors

Find = Callable[[str], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Affine:
    """A weight and a bias: of a product [outputs, inputs], of a norm, or of a convolution."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer; `cross_` parts are the decoder's only.

    Attributes:
        norm: Before attending.
        qkv: Query, key and value, stacked.
        output: Of attention.
        cross_norm: Before attending to the sound.
        cross_query: Of the text.
        cross_key_value: Of the sound, stacked.
        cross_output: Of attention to the sound.
        inner_norm: Before the second half.
        up: To the inner width.
        down: And back.
    """

    norm: Affine
    qkv: Affine
    output: Affine
    cross_norm: Affine | None = None
    cross_query: Affine | None = None
    cross_key_value: Affine | None = None
    cross_output: Affine | None = None
    inner_norm: Affine
    up: Affine
    down: Affine


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """An encoder or decoder.

    Attributes:
        positions: A vector for each place, [places, width].
        layers: In their order.
        norm: Of the last layer's output.
    """

    positions: Tensor
    layers: tuple[Layer, ...]
    norm: Affine


@dataclass(frozen=True, kw_only=True, slots=True)
class WhisperWeights:
    """Everything Whisper computes with.

    Attributes:
        convolutions: The two before the encoder, [outputs, inputs, 3].
        encoder: Of sound.
        decoder: Of text.
        tokens: A vector for each token, [vocabulary, width]; also makes the logits.
    """

    convolutions: tuple[Affine, Affine]
    encoder: Stack
    decoder: Stack
    tokens: Tensor


def whisper_weights(path: Path, param: str) -> WhisperWeights:
    """Read a model's weights: safetensors as transformers names them, or CTranslate2's file.

    Args:
        path: The file.
        param: The manifest's field that names it, for errors.

    Raises:
        BundleError: It can't be read, or lacks what a Whisper model has.
    """
    if path.suffix == ".safetensors":
        return _from_transformers(_safetensors(path, param), param)
    return _from_ct2(path, param)


def _safetensors(path: Path, param: str) -> Mapping[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise BundleError(f"the weights can't be read: {error}", param=param) from error


def _finder(tensors: Mapping[str, Tensor], param: str) -> Find:
    def find(name: str) -> Tensor:
        if name not in tensors:
            raise BundleError(f"the weights lack {name}", param=param)
        return tensors[name].float()

    return find


def _count(tensors: Mapping[str, Tensor], form: str) -> int:
    count = 0
    while form.format(count) in tensors:
        count += 1
    return count


def _from_ct2(path: Path, param: str) -> WhisperWeights:
    tensors = {
        name: torch.from_numpy(np.array(values, dtype=np.float32))
        for name, values in read_tensors(path, param).items()
        if values.ndim
    }
    find = _finder(tensors, param)

    def affine(name: str) -> Affine:
        return Affine(weight=find(f"{name}/weight"), bias=find(f"{name}/bias"))

    def norm(name: str) -> Affine:
        return Affine(weight=find(f"{name}/gamma"), bias=find(f"{name}/beta"))

    def layer(at: str, *, cross: bool) -> Layer:
        return Layer(
            norm=norm(f"{at}/self_attention/layer_norm"),
            qkv=affine(f"{at}/self_attention/linear_0"),
            output=affine(f"{at}/self_attention/linear_1"),
            cross_norm=norm(f"{at}/attention/layer_norm") if cross else None,
            cross_query=affine(f"{at}/attention/linear_0") if cross else None,
            cross_key_value=affine(f"{at}/attention/linear_1") if cross else None,
            cross_output=affine(f"{at}/attention/linear_2") if cross else None,
            inner_norm=norm(f"{at}/ffn/layer_norm"),
            up=affine(f"{at}/ffn/linear_0"),
            down=affine(f"{at}/ffn/linear_1"),
        )

    def stack(side: str) -> Stack:
        layers = _count(tensors, f"{side}/layer_{{}}/ffn/linear_0/weight")
        cross = side == "decoder"
        return Stack(
            positions=find(f"{side}/position_encodings/encodings"),
            layers=tuple(layer(f"{side}/layer_{at}", cross=cross) for at in range(layers)),
            norm=norm(f"{side}/layer_norm"),
        )

    return WhisperWeights(
        convolutions=(affine("encoder/conv1"), affine("encoder/conv2")),
        encoder=stack("encoder"),
        decoder=stack("decoder"),
        tokens=find("decoder/embeddings/weight"),
    )


def _from_transformers(tensors: Mapping[str, Tensor], param: str) -> WhisperWeights:
    find = _finder(tensors, param)

    def affine(name: str) -> Affine:
        weight = find(f"{name}.weight")
        bias = find(f"{name}.bias") if f"{name}.bias" in tensors else torch.zeros(len(weight))
        return Affine(weight=weight, bias=bias)

    def stacked(name: str, parts: str) -> Affine:
        each = [affine(f"{name}.{part}_proj") for part in parts]
        return Affine(
            weight=torch.cat([part.weight for part in each]),
            bias=torch.cat([part.bias for part in each]),
        )

    def layer(at: str, *, cross: bool) -> Layer:
        return Layer(
            norm=affine(f"{at}.self_attn_layer_norm"),
            qkv=stacked(f"{at}.self_attn", "qkv"),
            output=affine(f"{at}.self_attn.out_proj"),
            cross_norm=affine(f"{at}.encoder_attn_layer_norm") if cross else None,
            cross_query=affine(f"{at}.encoder_attn.q_proj") if cross else None,
            cross_key_value=stacked(f"{at}.encoder_attn", "kv") if cross else None,
            cross_output=affine(f"{at}.encoder_attn.out_proj") if cross else None,
            inner_norm=affine(f"{at}.final_layer_norm"),
            up=affine(f"{at}.fc1"),
            down=affine(f"{at}.fc2"),
        )

    def stack(side: str) -> Stack:
        layers = _count(tensors, f"model.{side}.layers.{{}}.fc1.weight")
        cross = side == "decoder"
        return Stack(
            positions=find(f"model.{side}.embed_positions.weight"),
            layers=tuple(layer(f"model.{side}.layers.{at}", cross=cross) for at in range(layers)),
            norm=affine(f"model.{side}.layer_norm"),
        )

    return WhisperWeights(
        convolutions=(affine("model.encoder.conv1"), affine("model.encoder.conv2")),
        encoder=stack("encoder"),
        decoder=stack("decoder"),
        tokens=find("model.decoder.embed_tokens.weight"),
    )
