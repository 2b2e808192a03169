"""The networks that are served, by the name of their architecture, with their weights.

- `EfficientNetLite0` to `4` is a module of our own, with timm's names.
- `torchvision/<name>` and `timm/<name>` are built by these libraries.
- Any other is a class of transformers for image classification; its `config` is an artifact.

Weights are the safetensors artifact `weights`, or a pinned checkpoint.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForImageClassification
from transformers.utils.logging import disable_progress_bar

from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.vision.engine.checkpoint import converted
from headpond_workloads.vision.engine.efficientnet_lite import VARIANTS, EfficientNetLite
from headpond_workloads.vision.engine.options import Checkpoint

_PARAM = "execution.architecture"


def load_network(
    bundle: Bundle, labels: int, checkpoint: Checkpoint | None, cache: Path
) -> nn.Module:
    """Build the network that a bundle names, with its weights, in float32, for inference.

    Args:
        bundle: A bundle whose weights are safetensors, or a checkpoint.
        labels: How many there are.
        checkpoint: The bundle's.
        cache: Where converted checkpoints are kept.

    Returns:
        A module of `(images, 3, height, width)`, normalised, to logits `(images, labels)`.

    Raises:
        BundleError: The architecture is not known, or the weights are not its own.
    """
    architecture = bundle.manifest.execution.architecture
    library, slash, name = architecture.partition("/")
    if architecture in VARIANTS:
        network: nn.Module = EfficientNetLite(architecture, labels)
    elif slash and library in _LIBRARIES:
        network = _LIBRARIES[library](name, labels)
    else:
        return _Logits(_transformers(bundle)).eval()
    names = list(network.state_dict())
    _load_weights(network, _weights(bundle, names, checkpoint, cache))
    network.eval()
    if isinstance(network, EfficientNetLite):
        network.fold()
    return network


class _Logits(nn.Module):
    """A classifier of transformers, which answers with its logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values=images, return_dict=True).logits
        return logits


def _torchvision(name: str, labels: int) -> nn.Module:
    models = import_module("torchvision.models")
    if name not in models.list_models(module=models):
        raise BundleError(f"torchvision has no classifier {name!r}", param=_PARAM)
    network: nn.Module = models.get_model(name, weights=None, num_classes=labels)
    return network


def _timm(name: str, labels: int) -> nn.Module:
    try:
        timm = import_module("timm")
    except ImportError as error:
        raise BundleError(f"timm/{name} needs the package timm", param=_PARAM) from error
    if not timm.is_model(name):
        raise BundleError(f"timm has no model {name!r}", param=_PARAM)
    network: nn.Module = timm.create_model(name, pretrained=False, num_classes=labels)
    return network


_LIBRARIES = {"torchvision": _torchvision, "timm": _timm}


def _transformers(bundle: Bundle) -> nn.Module:
    architecture = bundle.manifest.execution.architecture
    disable_progress_bar()  # type: ignore[no-untyped-call]
    files = {"config": "config.json", "weights": "model.safetensors"}
    for name in files:
        if name not in bundle.files:
            raise BundleError(f"{architecture} needs the artifact {name!r}", param="artifacts")
    with tempfile.TemporaryDirectory(prefix="headpond-") as folder:
        for name, file in files.items():
            (Path(folder) / file).symlink_to(bundle.files[name].resolve())
        config = AutoConfig.from_pretrained(folder)
        try:
            model = AutoModelForImageClassification.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
            )
        except ValueError as error:
            raise BundleError(f"transformers can't load it: {error}", param=_PARAM) from error
    if type(model).__name__ != architecture:
        raise BundleError(
            f"the bundle says {architecture}, its files make {type(model).__name__}", param=_PARAM
        )
    network: nn.Module = model
    return network


def _weights(
    bundle: Bundle, names: list[str], checkpoint: Checkpoint | None, cache: Path
) -> Mapping[str, Tensor]:
    artifact = bundle.files.get("weights")
    if artifact is not None and checkpoint is None:
        return load_file(artifact)
    if artifact is None and checkpoint is not None:
        return load_file(converted(checkpoint, names, bundle.root, cache))
    raise BundleError("give either the artifact 'weights' or a checkpoint", param="artifacts")


def _load_weights(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        first = " ".join(str(error).split())[:300]
        raise BundleError(
            f"the weights are not the architecture's: {first}", param=_PARAM
        ) from None
