"""What a bundle must be to become an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from headpond.bundle.fixtures import check_fixtures
from headpond.bundle.locking import lock_engine
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.vision.engine.load import load
from headpond_workloads.vision.record import MAX_PIXELS, record
from workloads.vision.conftest import LABELS, SETTINGS, changed

if TYPE_CHECKING:
    from workloads.vision.conftest import Tiny


def test_symbols_are_those_of_the_record_and_the_model(lite: Tiny) -> None:
    symbols = lite.engine().symbols
    assert set(symbols) == set(record.symbols)
    assert (symbols["labels"], symbols["input_height"], symbols["input_width"]) == (7, 32, 32)
    assert 3_300_000 * 4 < symbols["weight_bytes"] < 3_500_000 * 4


def test_lanes_are_threads_and_the_budget_an_option(averaging: Tiny) -> None:
    assert averaging.engine().lanes == 2
    assert averaging.engine().budget == 4
    assert averaging.engine(options={"batch_images": 9}).budget == 9


def test_pixels_are_limited_by_the_bundle_and_never_beyond_the_record(averaging: Tiny) -> None:
    assert averaging.engine().max_pixels == MAX_PIXELS
    bundle = changed(averaging.bundle, limits={"pixels": 1000})
    assert load(bundle, SETTINGS, cache=averaging.cache).max_pixels == 1000
    bundle = changed(averaging.bundle, limits={"pixels": 10**12})
    assert load(bundle, SETTINGS, cache=averaging.cache).max_pixels == MAX_PIXELS


@pytest.mark.parametrize(
    ("sections", "param"),
    [
        ({"execution": {"architecture": "EfficientNetLite9"}}, "artifacts"),
        ({"execution": {"architecture": "torchvision/none"}}, "execution.architecture"),
        ({"execution": {"architecture": "torchvision/resnet18"}}, "execution.architecture"),
        ({"execution": {"architecture": "onnx"}}, "execution.options.runtime"),
        ({"execution": {"architecture": "onnx", "options": {}}}, "artifacts"),
        ({"execution": {"options": {"runtime": "magic"}}}, "execution.options.runtime"),
        (
            {"execution": {"dtype": "bfloat16", "options": {"runtime": "onnxruntime"}}},
            "execution.options.runtime",
        ),
        ({"output": {"labels": "nothing"}}, "output.labels"),
        ({"output": {"labels": "labels", "activation": "relu"}}, "output.activation"),
        ({"output": {}}, "output.labels"),
        ({"input": {}}, "input.size"),
    ],
)
def test_a_bundle_that_contradicts_itself_is_refused(
    lite: Tiny, sections: dict[str, object], param: str
) -> None:
    with pytest.raises(BundleError) as refusal:
        load(changed(lite.bundle, **sections), SETTINGS, cache=lite.cache)
    assert refusal.value.param == param


@pytest.mark.parametrize("labels", ["ant\n\nbee\n", ""])
def test_labels_with_gaps_are_refused(averaging: Tiny, tmp_path: Path, labels: str) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(labels)
    bundle = replace(averaging.bundle, files={**averaging.bundle.files, "labels": path})
    with pytest.raises(BundleError, match="every line"):
        load(bundle, SETTINGS)


def test_labels_of_another_number_are_refused(averaging: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("\n".join(LABELS[:-1]))
    bundle = replace(averaging.bundle, files={**averaging.bundle.files, "labels": path})
    with pytest.raises(BundleError, match="there are 6 labels"):
        load(bundle, SETTINGS)


def test_a_file_that_is_no_network_is_refused(averaging: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(averaging.bundle.files["model"].read_bytes()[:100])
    bundle = replace(averaging.bundle, files={**averaging.bundle.files, "model": path})
    with pytest.raises(BundleError, match="can't open"):
        load(bundle, SETTINGS)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(averaging: Tiny, device: str) -> None:
    if torch.cuda.is_available() and device == "cuda":
        pytest.skip("there is one")
    with pytest.raises(BundleError, match=device):
        load(averaging.bundle, EngineSettings(state_bytes=2**20, device=device))


PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEklEQVR4nGP4z8DAAMIM/4EAAB/uBfsL2WiLAAAA"
    "AElFTkSuQmCC"
)


def test_fixtures_are_locked_and_checked(averaging: Tiny) -> None:
    given = {"name": "dots", "given": {"image": PNG, "top_k": 3}, "tolerance": 1e-3}
    bundle = changed(averaging.bundle, fixtures=[given])
    manifest = lock_engine(record, bundle, SETTINGS)
    engine = load(bundle, SETTINGS)
    check_fixtures(record, manifest, engine.observe)
    (fixture,) = manifest.fixtures
    assert set(fixture.expect) == {"pixels", "logits", "labels"}
    (labels, logits) = (fixture.expect[name] for name in ("labels", "logits"))
    assert isinstance(labels, list)
    assert isinstance(logits, list)
    assert (len(labels), len(logits)) == (3, len(LABELS))
    inputs = averaging.bundle.manifest.input | {"mean": [0.6, 0.4, 0.3]}
    other = load(changed(bundle, input=inputs), SETTINGS)
    with pytest.raises(BundleError, match="decoder or preprocessing"):
        check_fixtures(record, manifest, other.observe)


@pytest.mark.parametrize("given", [{}, {"image": "!"}, {"image": PNG, "top_k": 0}])
def test_a_fixture_without_an_image_is_refused(
    averaging: Tiny, given: dict[str, str | int]
) -> None:
    with pytest.raises(BundleError) as refusal:
        averaging.engine().observe(given)
    assert refusal.value.param is not None
    assert refusal.value.param.startswith("fixtures.given")
