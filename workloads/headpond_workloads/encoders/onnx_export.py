"""Encoders as ONNX graphs: what `onnx_encoder` computes, from a bundle's own weights.

A graph takes `input_ids`, `attention_mask` and `token_type_ids`, int64 of shape [batch,
tokens], and gives `last_hidden_state`, float32 of shape [batch, tokens, hidden]. What it gives
at places outside of the mask means nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxruntime.quantization import quantize_dynamic  # type: ignore[import-untyped]
from onnxruntime.quantization.shape_inference import (  # type: ignore[import-untyped]
    quant_pre_process,
)
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.functional import embedding

from headpond.bundle.exporting import Exported, Quantization
from headpond.bundle.manifest import Execution
from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.encoders.config import EncoderConfig, read_config
from headpond_workloads.encoders.tokenizer import read_tokenizer
from headpond_workloads.encoders.torch_encoder import activated
from headpond_workloads.encoders.weights import (
    Affine,
    EncoderWeights,
    LayerWeights,
    WeightFile,
    encoder_weights,
)

_OPSET = 20  # the first with Gelu
_MOST_BYTES = 2**31 - 2**20  # of one protobuf message, less what is not weights
_TORCH_ONLY = frozenset({"quantization", "batch_tokens"})
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def export(bundle: Bundle, folder: Path, *, quantization: Quantization | None) -> Exported:
    """Write a bundle's encoder as a graph; everything that makes texts of it stays.

    Args:
        bundle: With safetensors weights.
        folder: Where the graph goes.
        quantization: `int8` computes products of weights and activations in a byte, the latter
            with one scale for a batch: vectors then depend on what shares their batch.

    Raises:
        BundleError: The files don't make an encoder, or make one too large for one file.
    """
    manifest = bundle.manifest
    if manifest.execution.options.get("engine") == "onnx":
        raise BundleError("the bundle is a graph already", param="execution.options.engine")
    config = read_config(bundle)
    weights = encoder_weights(WeightFile(bundle, config.family), config)
    read_tokenizer(bundle, config.vocab_tokens, types=len(weights.types))  # or it is refused here
    if weights.bytes(torch.float32, None) > _MOST_BYTES:
        raise BundleError("the weights are more than an ONNX file can hold", param="artifacts")
    path = folder / "model.onnx"
    if quantization is None:
        write_graph(config, weights, path)
    else:
        with tempfile.TemporaryDirectory(dir=folder) as part:
            exact = Path(part) / "exact.onnx"
            write_graph(config, weights, exact)
            _quantize(exact, path)
    options = {k: v for k, v in manifest.execution.options.items() if k not in _TORCH_ONLY}
    return Exported(
        execution=Execution(
            architecture=config.architecture, dtype="float32", options={**options, "engine": "onnx"}
        ),
        files={"graph": path},
        kept=tuple(each.name for each in manifest.artifacts if each.name != "weights"),
    )


def write_graph(config: EncoderConfig, weights: EncoderWeights, path: Path) -> None:
    """Write an encoder as a graph in float32; the same encoder gives the same file."""
    batch, tokens = Dim("batch", min=1), Dim("tokens", min=1, max=config.positions)
    alike = {0: Dim.AUTO, 1: Dim.AUTO}
    # Each its own tensor: torch takes one that comes twice for one input.
    examples = tuple(torch.ones(2, 3, dtype=torch.int64) for _ in _INPUTS)
    program = torch.onnx.export(
        _PaddedEncoder(config, weights).eval(),
        examples,
        dynamo=True,
        opset_version=_OPSET,
        input_names=_INPUTS,
        output_names=["last_hidden_state"],
        dynamic_shapes=({0: batch, 1: tokens}, alike, alike),
        verbose=False,
    )
    if program is None:
        raise BundleError("torch gave no graph", param="artifacts")
    # It says on whose machine, and where in which file, each node was made.
    ClearMetadataAndDocStringPass()(program.model)
    program.save(path, external_data=False)


def _quantize(exact: Path, path: Path) -> None:
    inferred = exact.with_name("inferred.onnx")
    quant_pre_process(exact, inferred, skip_optimization=True, skip_symbolic_shape=True)
    # One scale for a whole matrix costs too much: cosines of 0.87, against 0.97.
    quantize_dynamic(inferred, path, per_channel=True, op_types_to_quantize=["MatMul", "Gather"])


class _PaddedEncoder(nn.Module):
    """The forward over a batch that is filled up to its longest sequence."""

    def __init__(self, config: EncoderConfig, weights: EncoderWeights) -> None:
        super().__init__()
        self._words, self._types, self._positions = (
            nn.Parameter(table, requires_grad=False)
            for table in (weights.words, weights.types, weights.positions)
        )
        self._norm = _norm(weights.norm, config)
        self._layers = nn.ModuleList(_PaddedLayer(config, layer) for layer in weights.layers)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Return the rows of each sequence, of shape [batch, tokens, hidden]."""
        rows = embedding(input_ids, self._words) + embedding(token_type_ids, self._types)
        rows = rows + self._positions[: input_ids.shape[1]]
        normalized: Tensor = self._norm(rows)
        absent = 1.0 - attention_mask[:, None, None, :].float()
        bias = absent * torch.finfo(torch.float32).min
        for layer in self._layers:
            normalized = layer(normalized, bias)
        return normalized


class _PaddedLayer(nn.Module):
    def __init__(self, config: EncoderConfig, weights: LayerWeights) -> None:
        super().__init__()
        self._config = config
        self._qkv = _linear(weights.query, weights.key, weights.value)
        self._output = _linear(weights.output)
        self._attention_norm = _norm(weights.attention_norm, config)
        self._up = _linear(weights.up)
        self._down = _linear(weights.down)
        self._output_norm = _norm(weights.output_norm, config)

    def forward(self, rows: Tensor, bias: Tensor) -> Tensor:
        """Compute a layer; `bias` keeps attention from what is not there."""
        attended = self._output(self._attended(rows, bias))
        rows = self._attention_norm(rows + attended)
        inner = activated(self._up(rows), self._config.activation)
        result: Tensor = self._output_norm(rows + self._down(inner))
        return result

    def _attended(self, rows: Tensor, bias: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self._config.heads, -1)).transpose(1, 2)
            for part in self._qkv(rows).chunk(3, dim=-1)
        )
        scores: Tensor = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        shares = torch.softmax(scores + bias, dim=-1)
        attended: Tensor = shares @ value
        return attended.transpose(1, 2).flatten(2)


def _linear(*parts: Affine) -> nn.Linear:
    """Return the products of some weights with the same inputs, as one."""
    weight = torch.cat([each.weight for each in parts])
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.bias = nn.Parameter(torch.cat([each.bias for each in parts]), requires_grad=False)
    return layer


def _norm(affine: Affine, config: EncoderConfig) -> nn.LayerNorm:
    layer = nn.LayerNorm(config.hidden, eps=config.epsilon)
    layer.weight = nn.Parameter(affine.weight, requires_grad=False)
    layer.bias = nn.Parameter(affine.bias, requires_grad=False)
    return layer
