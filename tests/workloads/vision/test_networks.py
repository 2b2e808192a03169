"""Logits are those of the library that each network comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from headpond.engine import Plan
from headpond.errors import BundleError
from headpond_workloads.vision.engine.efficientnet_lite import VARIANTS, EfficientNetLite
from headpond_workloads.vision.engine.engine import Prepared, VisionEngine
from headpond_workloads.vision.engine.forward import Floats
from headpond_workloads.vision.engine.tensors import stack
from headpond_workloads.vision.items import ImageItem, Logits
from workloads.images.pictures import saved, scene
from workloads.vision.conftest import randomise, save_onnx

if TYPE_CHECKING:
    from workloads.vision.conftest import Tiny

ITEMS = [
    ImageItem(data=saved(scene(70 + 20 * at, 60, seed=at), "PNG"), selection=None)
    for at in range(5)
]


def logits(engine: VisionEngine, plans: list[Plan[Prepared]]) -> Floats:
    rows = []
    for outcome in engine.run(plans):
        (payload,) = outcome.outputs
        assert isinstance(payload, Logits)
        rows.append(np.frombuffer(payload.values, "<f4"))
    return np.stack(rows)


def reference(tiny: Tiny, engine: VisionEngine, plans: list[Plan[Prepared]]) -> Floats:
    values = [plan.prepared.values for plan in plans]
    batch = stack(values, engine.preprocessing, as_pixels=False)
    with torch.inference_mode():
        return np.asarray(tiny.reference(torch.from_numpy(batch).permute(0, 3, 1, 2)))


def test_logits_are_the_librarys_alone_and_in_a_batch(any_tiny: Tiny) -> None:
    engine = any_tiny.engine()
    plans = [engine.plan(item, "tenant") for item in ITEMS]
    expected = reference(any_tiny, engine, plans)
    scale = np.abs(expected).max()
    assert np.abs(logits(engine, plans) - expected).max() < 1e-4 * scale
    for at, plan in enumerate(plans):
        assert np.abs(logits(engine, [plan])[0] - expected[at]).max() < 1e-4 * scale
    assert np.abs(expected[0] - expected[1]).max() > 1e-2 * scale


def test_rounding_to_bfloat16_stays_small(lite: Tiny) -> None:
    engine = lite.engine(dtype="bfloat16")
    plans = [engine.plan(item, "tenant") for item in ITEMS]
    expected = reference(lite, engine, plans)
    apart = np.abs(logits(engine, plans) - expected).max() / np.abs(expected).max()
    assert 1e-5 < apart < 0.05
    assert engine.symbols["weight_bytes"] * 2 == lite.engine().symbols["weight_bytes"]


def test_an_exported_network_is_kept(lite: Tiny) -> None:
    plans = [lite.engine().plan(item, "tenant") for item in ITEMS]
    options = {"runtime": "onnxruntime"}
    first = lite.engine(options=options)
    (kept,) = (lite.cache / "unpacked").glob("*.onnx")
    made_at = kept.stat().st_mtime_ns
    second = lite.engine(options=options)
    assert kept.stat().st_mtime_ns == made_at
    expected = reference(lite, second, plans)
    for engine in (first, second):
        assert np.abs(logits(engine, plans) - expected).max() < 1e-4 * np.abs(expected).max()


def test_an_exported_network_that_computes_something_else_is_refused(
    lite: Tiny, averaging: Tiny
) -> None:
    options = {"runtime": "onnxruntime"}
    lite.engine(options=options)
    (kept,) = (lite.cache / "unpacked").glob("*.onnx")
    whole = kept.read_bytes()
    try:
        kept.write_bytes(averaging.bundle.files["model"].read_bytes())
        with pytest.raises(BundleError, match="differs"):
            lite.engine(options=options)
    finally:
        kept.write_bytes(whole)


@pytest.mark.parametrize("number", range(5))
def test_every_variant_is_timms(number: int) -> None:
    timm = pytest.importorskip("timm")
    theirs = timm.create_model(f"tf_efficientnet_lite{number}", num_classes=9)
    randomise(theirs)
    ours = EfficientNetLite(list(VARIANTS)[number], 9).eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 61, 80, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = theirs(images)
        assert (expected[0] - expected[1]).abs().max() > 0.01 * expected.abs().max()
        for _ in range(2):
            assert (ours(images) - expected).abs().max() < 1e-4 * expected.abs().max()
            ours.fold()


@pytest.mark.parametrize("channels_first", [True, False])
def test_a_file_of_onnx_may_have_either_order_and_a_fixed_batch(
    tmp_path: Path, *, channels_first: bool
) -> None:
    tiny = save_onnx(tmp_path, batch=1, channels_first=channels_first)
    engine = tiny.engine()
    assert engine.budget == 1
    plan = engine.plan(ITEMS[0], "tenant")
    expected = reference(tiny, engine, [plan])
    assert np.abs(logits(engine, [plan]) - expected).max() < 1e-4


def test_a_file_of_onnx_for_batches_of_one_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="one image, or any number"):
        save_onnx(tmp_path, batch=2).engine()
