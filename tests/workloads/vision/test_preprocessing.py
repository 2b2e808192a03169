"""A bundle's input contract gives the pixels that the reference libraries give."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torchvision.transforms import InterpolationMode  # type: ignore[import-untyped]
from torchvision.transforms._presets import ImageClassification  # type: ignore[import-untyped]

from headpond.bundle.manifest import Artifact, Execution, Manifest
from headpond.engine import Json
from headpond.errors import BundleError
from headpond_workloads.vision.engine.forward import Floats
from headpond_workloads.vision.engine.preprocessing import Preprocessing
from headpond_workloads.vision.engine.tensors import stack
from workloads.images.pictures import scene

SIZES = [(640, 480), (480, 640), (257, 256), (256, 300), (231, 517), (64, 48), (224, 224)]
IMAGENET: Mapping[str, Json] = {
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}
HALF: Mapping[str, Json] = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}


def preprocessing(**given: Json) -> Preprocessing:
    return Preprocessing.of(
        Manifest(
            name="tiny",
            version="1.0.0",
            workload="vision",
            summary="None.",
            licence="Apache-2.0",
            artifacts=(
                Artifact(name="labels", source="file:labels.txt", bytes=1, sha256="0" * 64),
            ),
            input=given,
            execution=Execution(architecture="EfficientNetLite0", dtype="float32"),
        )
    )


def normalised(contract: Preprocessing, picture: Image.Image) -> Floats:
    """What the network gets, channels first."""
    (batch,) = stack([contract.pixels(picture)], contract, as_pixels=False)
    return np.moveaxis(batch, -1, 0)


def levels_apart(contract: Preprocessing, picture: Image.Image, reference: torch.Tensor) -> Floats:
    """Differences from a reference, in levels of 0 to 255."""
    apart: Floats = normalised(contract, picture) - reference.numpy()
    return np.abs(apart) * contract.pixel_std[:, None, None]


def check_equal(apart: Floats) -> None:
    """Equal at 98 of 100 pixels, and a few levels apart at an edge.

    Pillow resizes rows first or columns first, whichever is less work, and rounds between;
    for a crop that may be the other way round than for the whole picture.
    """
    assert apart.max() < 7
    assert (apart > 0.01).mean() < 0.02


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_equals_torchvision(size: tuple[int, int], interpolation: str) -> None:
    contract = preprocessing(
        size={"height": 224, "width": 224},
        shortest_edge=232,
        interpolation=interpolation,
        **IMAGENET,
    )
    reference = ImageClassification(
        crop_size=224, resize_size=232, interpolation=InterpolationMode(interpolation)
    )
    picture = scene(*size)
    check_equal(levels_apart(contract, picture, reference(picture)))


@pytest.mark.parametrize("size", SIZES)
def test_equals_timm(size: tuple[int, int]) -> None:
    data = pytest.importorskip("timm.data")
    contract = preprocessing(
        size={"height": 224, "width": 224},
        shortest_edge=256,
        interpolation="bicubic",
        rescale=1.0,
        mean=[127.0, 127.0, 127.0],
        std=[128.0, 128.0, 128.0],
    )
    reference = data.create_transform(
        (3, 224, 224),
        interpolation="bicubic",
        crop_pct=0.875,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
    )
    picture = scene(*size)
    check_equal(levels_apart(contract, picture, reference(picture)))


@pytest.mark.parametrize("size", SIZES)
def test_equals_transformers_resizing_to_a_square(size: tuple[int, int]) -> None:
    contract = preprocessing(size={"height": 96, "width": 96}, interpolation="bilinear", **HALF)
    processor = transformers.ViTImageProcessor(size={"height": 96, "width": 96})
    picture = scene(*size)
    (reference,) = processor(picture, return_tensors="pt")["pixel_values"]
    assert levels_apart(contract, picture, reference).max() < 1.01


@pytest.mark.parametrize("size", SIZES)
def test_equals_transformers_cropping(size: tuple[int, int]) -> None:
    contract = preprocessing(
        size={"height": 224, "width": 224},
        shortest_edge=256,
        interpolation="bilinear",
        crop_offset="floor",
        **HALF,
    )
    processor = transformers.MobileNetV2ImageProcessor(
        size={"shortest_edge": 256}, crop_size={"height": 224, "width": 224}
    )
    picture = scene(*size)
    (reference,) = processor(picture, return_tensors="pt")["pixel_values"]
    assert levels_apart(contract, picture, reference).max() < 1.01


@pytest.mark.parametrize("size", [(1, 1), (1, 20_000), (20_000, 1), (3, 2)])
def test_extreme_proportions_take_no_more_than_the_crop(size: tuple[int, int]) -> None:
    contract = preprocessing(
        size={"height": 224, "width": 224}, shortest_edge=256, interpolation="bicubic", **HALF
    )
    pixels = contract.pixels(Image.new("RGB", size, (9, 99, 199)))
    assert pixels.shape == (224, 224, 3)
    assert (pixels == (9, 99, 199)).all()


def test_pixels_and_normalised_values_mix_in_a_batch() -> None:
    contract = preprocessing(size={"height": 8, "width": 8}, interpolation="bilinear", **IMAGENET)
    pixels = contract.pixels(scene())
    (values,) = stack([pixels], contract, as_pixels=False)
    for as_pixels in (False, True):
        one, other = stack([pixels, values], contract, as_pixels=as_pixels)
        assert np.abs(one - other).max() < 1e-4
    assert np.abs(one - pixels).max() == 0


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"size": {"height": 0, "width": 8}}, "input.size.height"),
        ({"shortest_edge": 4}, "input"),
        ({"interpolation": "magic"}, "input.interpolation"),
        ({"std": [1.0, 0.0, 1.0]}, "input.std.1"),
        ({"mean": [1.0]}, "input.mean"),
        ({"crop_pct": 0.9}, "input.crop_pct"),
    ],
)
def test_a_contract_that_cannot_be_kept_is_refused(changes: dict[str, Json], param: str) -> None:
    fine: dict[str, Json] = {"size": {"height": 8, "width": 8}, "interpolation": "box", **HALF}
    with pytest.raises(BundleError) as refusal:
        preprocessing(**(fine | changes))
    assert refusal.value.param is not None
    assert refusal.value.param.startswith(param)
