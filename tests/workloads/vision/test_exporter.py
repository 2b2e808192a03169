"""Bundles of images as ONNX, held to what their fixtures say."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headpond.bundle.exporting import Export, export_bundle
from headpond.bundle.fixtures import FixtureFailed
from headpond.bundle.loading import load_engine
from headpond.bundle.locking import lock_engine
from headpond.bundle.manifest import Fixture
from headpond.bundle.store import Bundle, Store, open_bundle
from headpond.engine import EngineSettings, Json
from headpond.errors import BundleError
from headpond_workloads.vision.engine.exporter import export
from headpond_workloads.vision.record import record
from workloads.images.pictures import saved, scene
from workloads.vision.conftest import changed, save_torchvision, save_vit

if TYPE_CHECKING:
    from workloads.vision.conftest import Tiny

SETTINGS = EngineSettings(state_bytes=2**24)
PNG = base64.b64encode(saved(scene(70, 60), "PNG")).decode()
GIVEN: dict[str, Json] = {"image": PNG, "top_k": 2}


def locked(bundle: Bundle) -> Bundle:
    """The bundle with the values of one image, as it is computed by torch."""
    bundle = changed(bundle, execution={"options": {"runtime": "torch", "batch_images": 2}})
    fixture = Fixture(name="scene", given=dict(GIVEN), tolerance=1e-3)
    draft = replace(bundle, manifest=bundle.manifest.model_copy(update={"fixtures": (fixture,)}))
    return replace(bundle, manifest=lock_engine(record, draft, SETTINGS))


@pytest.mark.parametrize("save", [save_torchvision, save_vit])
def test_an_exported_bundle_is_served_and_says_what_the_old_one_said(
    save: object, tmp_path: Path
) -> None:
    assert callable(save)
    (tmp_path / "tiny").mkdir()
    source = locked(save(tmp_path / "tiny").bundle)
    target, store = tmp_path / "graph", Store(tmp_path / "cache")
    export_bundle(record, source, target, Export(), store=store, settings=SETTINGS)
    opened = open_bundle(target, cache=tmp_path / "cache")
    assert set(opened.files) == {"labels", "model"}
    execution = opened.manifest.execution
    assert (execution.architecture, execution.dtype) == ("onnx", "float32")
    assert execution.options == {"batch_images": 2, "takes_pixels": True}
    assert opened.manifest.fixtures == source.manifest.fixtures
    expected = load_engine(record, source, SETTINGS).observe(GIVEN)
    found = load_engine(record, opened, SETTINGS).observe(GIVEN)
    assert found["labels"] == expected["labels"]
    assert found["logits"] == pytest.approx(expected["logits"], abs=1e-3)
    assert b".py" not in opened.files["model"].read_bytes()


def test_a_graph_that_computes_something_else_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    source = locked(save_torchvision(tmp_path / "tiny").bundle)
    (fixture,) = source.manifest.fixtures
    wrong = {**fixture.expect, "logits": [9.0] * len(fixture.expect["logits"])}  # type: ignore[arg-type]
    lying = source.manifest.model_copy(
        update={"fixtures": (fixture.model_copy(update={"expect": wrong}),)}
    )
    with pytest.raises(FixtureFailed, match="logits"):
        export_bundle(
            record,
            replace(source, manifest=lying),
            tmp_path / "graph",
            Export(),
            store=Store(tmp_path / "cache"),
            settings=SETTINGS,
        )
    assert not (tmp_path / "graph").exists()


def test_what_is_not_exported(lite: Tiny, averaging: Tiny, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="a graph already"):
        export(averaging.bundle, tmp_path, quantization=None)
    with pytest.raises(BundleError, match="float32 only"):
        export(lite.bundle, tmp_path, quantization="int8")
    assert not list(tmp_path.iterdir())
