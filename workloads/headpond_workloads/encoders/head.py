"""The classification head of a cross-encoder: from a pair's first token to its labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import linear

from headpond.errors import BundleError
from headpond_workloads.encoders.config import EncoderConfig, Family
from headpond_workloads.encoders.weights import Affine, WeightFile


@dataclass(frozen=True, kw_only=True)
class Head:
    """Two linear layers and what is between them, in float32.

    Attributes:
        dense: The first, [hidden, hidden].
        activation: Between them.
        labels: The second, [labels, hidden].
    """

    dense: Affine
    activation: Callable[[Tensor], Tensor]
    labels: Affine

    def logits(self, row: Tensor) -> Tensor:
        """Return one number for each label.

        Args:
            row: Float32, of shape [hidden]. One at a time, so that no other can matter.
        """
        inner = self.activation(linear(row, self.dense.weight, self.dense.bias))
        return linear(inner, self.labels.weight, self.labels.bias)


def read_head(file: WeightFile, config: EncoderConfig) -> Head:
    """Find the head in a file of weights.

    Raises:
        BundleError: The model is no classifier, or one with another head.
    """
    if not config.architecture.endswith("ForSequenceClassification"):
        raise BundleError(
            f"{config.architecture} gives no scores; a classifier is needed, or scoring: maxsim",
            param="execution.architecture",
        )
    hidden, labels = config.hidden, len(config.labels)
    dense, out = _names(file, config)
    return Head(
        dense=file.affine(dense, hidden, hidden),
        activation=torch.relu if config.family is Family.DISTILBERT else torch.tanh,
        labels=file.affine(out, labels, hidden),
    )


def write_head(file: WeightFile, config: EncoderConfig, path: Path) -> None:
    """Write the head of a file of weights, under its own names, to go along with a graph.

    Raises:
        BundleError: As `read_head`.
    """
    head = read_head(file, config)
    tensors: dict[str, Tensor] = {}
    for name, affine in zip(_names(file, config), (head.dense, head.labels), strict=True):
        tensors |= {f"{name}.weight": affine.weight, f"{name}.bias": affine.bias}
    save_file(tensors, path)


def _names(file: WeightFile, config: EncoderConfig) -> tuple[str, str]:
    """Return what a family calls its two layers."""
    if config.family is Family.ROBERTA:
        return "classifier.dense", "classifier.out_proj"
    if config.family is Family.DISTILBERT:
        return "pre_classifier", "classifier"
    return f"{file.encoder_prefix}pooler.dense", "classifier"
