"""Tiny classifiers made on the spot, as bundles, and what their own libraries compute."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file
from torch import Tensor, nn

from headpond.bundle.manifest import Manifest
from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings, Json
from headpond_workloads.vision.engine.efficientnet_lite import EfficientNetLite
from headpond_workloads.vision.engine.engine import VisionEngine
from headpond_workloads.vision.engine.load import load

LABELS = ("ant", "bee", "cat", "dog", "bee", "fox", "gnu")
SIDE = 32
SETTINGS = EngineSettings(state_bytes=2**28, threads=2)
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


def bundle_of(
    folder: Path,
    architecture: str,
    files: Mapping[str, Path],
    *,
    options: Mapping[str, Json] | None = None,
    dtype: str = "float32",
) -> Bundle:
    """A bundle of files that lie in a folder, with its labels."""
    (folder / "labels.txt").write_text("\n".join(LABELS) + "\n")
    files = {**files, "labels": folder / "labels.txt"}
    manifest = Manifest.model_validate(
        {
            "name": "tiny",
            "version": "1.0.0",
            "workload": "vision",
            "summary": "A tiny random classifier.",
            "licence": "Apache-2.0",
            "artifacts": [_artifact(name, path) for name, path in files.items()],
            "input": {
                "size": {"height": SIDE, "width": SIDE},
                "shortest_edge": 40,
                "interpolation": "bilinear",
                "mean": list(MEAN),
                "std": list(STD),
            },
            "execution": {
                "architecture": architecture,
                "dtype": dtype,
                "options": dict(options or {}),
            },
            "output": {"labels": "labels"},
        }
    )
    return Bundle(manifest=manifest, root=folder, files=files)


def _artifact(name: str, path: Path) -> dict[str, object]:
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    return {"name": name, "source": f"file:{path.name}", "bytes": len(content), "sha256": sha256}


def changed(bundle: Bundle, **sections: object) -> Bundle:
    """The same bundle with sections of its manifest replaced; execution's are merged."""
    document = bundle.manifest.model_dump()
    for name, section in sections.items():
        both = isinstance(section, dict) and name == "execution"
        document[name] = document[name] | section if both else section
    return replace(bundle, manifest=Manifest.model_validate(document))


def save_weights(folder: Path, network: nn.Module) -> Path:
    path = folder / "model.safetensors"
    save_file({name: each.contiguous() for name, each in network.state_dict().items()}, path)
    return path


Network = Callable[[Tensor], Tensor]


def randomise(network: nn.Module) -> nn.Module:
    """Give weights that let a signal through, and normalisations statistics of their own."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            drawn = torch.randn(value.shape, generator=generator)
            if name.endswith("running_var"):
                value.copy_(drawn.abs() * 0.2 + 1.0)
            elif name.endswith("running_mean"):
                value.copy_(drawn * 0.1)
            elif value.dim() > 1:
                value.copy_(drawn * (1.7 / value[0].numel()) ** 0.5)
    return network.eval()


@dataclass(frozen=True)
class Tiny:
    """A bundle, and the same network in its own library.

    Attributes:
        bundle: What is served.
        reference: Normalised images, channels first, to logits.
        cache: Where what is converted is kept.
    """

    bundle: Bundle
    reference: Network
    cache: Path

    def engine(self, **execution: object) -> VisionEngine:
        bundle = changed(self.bundle, execution=execution)
        return load(bundle, SETTINGS, cache=self.cache)


def save_lite(folder: Path) -> Tiny:
    """EfficientNet-Lite0, computed by torch."""
    torch.manual_seed(5)
    network = randomise(EfficientNetLite("EfficientNetLite0", len(LABELS)))
    files = {"weights": save_weights(folder, network)}
    bundle = bundle_of(folder, "EfficientNetLite0", files, options={"runtime": "torch"})
    return Tiny(bundle, network, folder / "cache")


def save_torchvision(folder: Path) -> Tiny:
    """A network of torchvision, exported to ONNX."""
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(6)
    network = randomise(models.get_model("squeezenet1_1", weights=None, num_classes=len(LABELS)))
    files = {"weights": save_weights(folder, network)}
    return Tiny(bundle_of(folder, "torchvision/squeezenet1_1", files), network, folder / "cache")


def save_timm(folder: Path) -> Tiny:
    """A network of timm."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(7)
    network = randomise(timm.create_model("resnet10t", num_classes=len(LABELS)))
    files = {"weights": save_weights(folder, network)}
    bundle = bundle_of(folder, "timm/resnet10t", files, options={"runtime": "torch"})
    return Tiny(bundle, network, folder / "cache")


def save_vit(folder: Path) -> Tiny:
    """A vision transformer of transformers."""
    torch.manual_seed(8)
    config = transformers.ViTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=SIDE,
        patch_size=8,
    )
    config.num_labels = len(LABELS)
    model = transformers.ViTForImageClassification(config)
    randomise(model)
    model.save_pretrained(folder)
    files = {"config": folder / "config.json", "weights": folder / "model.safetensors"}
    bundle = bundle_of(folder, "ViTForImageClassification", files, options={"runtime": "torch"})

    def reference(images: Tensor) -> Tensor:
        logits: Tensor = model(pixel_values=images).logits
        return logits

    return Tiny(bundle, reference, folder / "cache")


def save_onnx(folder: Path, *, batch: int | str = "images", channels_first: bool = True) -> Tiny:
    """Mean of each channel, then a linear layer, as a file of ONNX."""
    weights = np.random.default_rng(9).normal(size=(3, len(LABELS))).astype(np.float32)
    shape = [batch, 3, SIDE, SIDE] if channels_first else [batch, SIDE, SIDE, 3]
    axes = [2, 3] if channels_first else [1, 2]
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["image", "axes"], ["mean"], keepdims=0),
            helper.make_node("MatMul", ["mean", "weights"], ["scores"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, len(LABELS)])],
        [
            numpy_helper.from_array(weights, "weights"),
            numpy_helper.from_array(np.asarray(axes, np.int64), "axes"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    bundle = bundle_of(folder, "onnx", {"model": folder / "model.onnx"})
    return Tiny(
        bundle, lambda images: images.mean((2, 3)) @ torch.from_numpy(weights), folder / "cache"
    )


KINDS: dict[str, Callable[[Path], Tiny]] = {
    "lite": save_lite,
    "torchvision": save_torchvision,
    "timm": save_timm,
    "vit": save_vit,
    "onnx": save_onnx,
}


@pytest.fixture(scope="session", params=KINDS)
def any_tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    kind: str = request.param
    return KINDS[kind](tmp_path_factory.mktemp(kind))


@pytest.fixture(scope="session")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return save_lite(tmp_path_factory.mktemp("lite"))


@pytest.fixture(scope="session")
def averaging(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The quickest: a file of ONNX."""
    return save_onnx(tmp_path_factory.mktemp("averaging"))


@pytest.fixture
def engine(averaging: Tiny) -> VisionEngine:
    return averaging.engine()
