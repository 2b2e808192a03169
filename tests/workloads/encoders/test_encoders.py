"""Both forwards against transformers, the native one against itself in company."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings, Json
from headpond.errors import BundleError
from headpond_workloads.encoders.encoder import Encoder
from headpond_workloads.encoders.load import load_encoder
from headpond_workloads.encoders.native import library as native_library
from headpond_workloads.encoders.native.encoder import NativeEncoder
from headpond_workloads.encoders.options import EncoderOptions, options_of
from headpond_workloads.encoders.tokens import Floats, Tokens, starts
from headpond_workloads.encoders.torch_encoder import TorchEncoder
from headpond_workloads.native.library import NativeUnavailable
from workloads.encoders.tiny import POSITIONS, VOCAB, Tiny, changed, save_tiny, sequence, with_file

SETTINGS = EngineSettings(state_bytes=2**20, threads=2)
LENGTHS = (2, 3, 15, 16, 17, 31, 32, 33, 50, 64, 90)
SEQUENCES = [sequence(count, first_type=count // 2) for count in LENGTHS]
FAMILIES = ("BertModel", "RobertaModel", "DistilBertModel", "BertForSequenceClassification")

try:
    native_library.library()
    NATIVE: NativeUnavailable | None = None
except NativeUnavailable as reason:
    NATIVE = reason
needs_native = pytest.mark.skipif(NATIVE is not None, reason=f"no native forward: {NATIVE}")
ENGINES = [pytest.param("native", marks=needs_native), "torch"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


def encoder_of(bundle: Bundle) -> Encoder:
    return load_encoder(bundle, SETTINGS, options_of(bundle.manifest, EncoderOptions)).encoder


def encoded(encoder: Encoder, sequences: list[Tokens]) -> list[Floats]:
    rows = encoder.encode(sequences)
    return [rows[a:b] for a, b in pairwise(starts(sequences))]


def cosine(found: Floats, expected: Floats) -> float:
    dots = (found * expected).sum(axis=1)
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float((dots / lengths).min())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_in_float32_are_those_of_transformers(
    family: str, engine: str, tmp_path: Path
) -> None:
    tiny = save_tiny(tmp_path, family)
    encoder = encoder_of(tiny.executed(engine=engine))
    inner = getattr(tiny.reference, tiny.reference.base_model_prefix, tiny.reference)
    reference = Tiny(bundle=tiny.bundle, reference=inner)
    for tokens, found in zip(SEQUENCES, encoded(encoder, SEQUENCES), strict=True):
        np.testing.assert_allclose(found, reference.rows(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "options", "least"),
    [
        pytest.param("bfloat16", {"engine": "native"}, 0.9995, marks=needs_native),
        pytest.param("bfloat16", {"quantization": "int8"}, 0.99, marks=needs_native),
        ("bfloat16", {"engine": "torch"}, 0.999),
    ],
)
def test_fewer_bits_point_the_same_way(
    tiny: Tiny, dtype: str, options: dict[str, Json], least: float
) -> None:
    encoder = encoder_of(tiny.executed(dtype, **options))
    exact = np.concatenate([tiny.rows(tokens) for tokens in SEQUENCES])
    found = encoder.encode(SEQUENCES)
    assert least <= cosine(found, exact)
    assert not np.array_equal(found, exact)


@needs_native
@pytest.mark.parametrize(
    ("dtype", "options"),
    [("float32", {}), ("bfloat16", {}), ("bfloat16", {"quantization": "int8"})],
)
class TestCompany:
    def test_a_sequence_is_the_same_to_the_bit_in_every_batch(
        self, tiny: Tiny, dtype: str, options: dict[str, Json]
    ) -> None:
        encoder = encoder_of(tiny.executed(dtype, **options))
        alone = [encoder.encode([tokens]) for tokens in SEQUENCES]
        backwards = SEQUENCES[::-1]
        for batch in (SEQUENCES, backwards, SEQUENCES[3:5], [SEQUENCES[7], *SEQUENCES]):
            for tokens, found in zip(batch, encoded(encoder, batch), strict=True):
                expected = alone[next(at for at, each in enumerate(SEQUENCES) if each is tokens)]
                assert np.array_equal(found, expected)

    def test_first_tokens_alone_are_the_same_to_the_bit(
        self, tiny: Tiny, dtype: str, options: dict[str, Json]
    ) -> None:
        encoder = encoder_of(tiny.executed(dtype, **options))
        firsts = np.stack([rows[0] for rows in encoded(encoder, SEQUENCES)])
        assert np.array_equal(encoder.encode(SEQUENCES, first_only=True), firsts)
        assert np.array_equal(encoder.encode(SEQUENCES[4:5], first_only=True), firsts[4:5])

    def test_lanes_do_not_disturb_each_other(
        self, tiny: Tiny, dtype: str, options: dict[str, Json]
    ) -> None:
        encoder = encoder_of(tiny.executed(dtype, **options))
        assert encoder.lanes == 2
        expected = [encoder.encode([tokens]) for tokens in SEQUENCES]
        with ThreadPoolExecutor(4) as pool:  # more callers than lanes only wait
            found = list(pool.map(lambda tokens: encoder.encode([tokens]), SEQUENCES * 8))
        assert all(map(np.array_equal, found, expected * 8))


@pytest.mark.parametrize("engine", ENGINES)
def test_types_and_places_count(tiny: Tiny, engine: str) -> None:
    encoder = encoder_of(tiny.executed(engine=engine))
    pair = sequence(12, first_type=6)
    single = Tokens(token_ids=pair.token_ids, type_ids=np.zeros(12, np.int32))
    swapped = Tokens(token_ids=pair.token_ids[::-1].copy(), type_ids=pair.type_ids)
    for other in (single, swapped):
        assert cosine(encoder.encode([pair])[:1], encoder.encode([other])[:1]) < 0.9999


@pytest.mark.parametrize("activation", ["relu", "gelu_new"])
def test_other_activations_are_computed_by_torch(
    activation: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny = save_tiny(tmp_path, hidden_act=activation)
    with caplog.at_level(logging.WARNING):
        encoder = encoder_of(tiny.bundle)
    assert isinstance(encoder, TorchEncoder)
    assert activation in caplog.text
    (found,) = encoded(encoder, SEQUENCES[5:6])
    np.testing.assert_allclose(found, tiny.rows(SEQUENCES[5]), atol=1e-5, rtol=1e-5)
    with pytest.raises(BundleError, match=activation) as refusal:
        encoder_of(tiny.executed(engine="native"))
    assert refusal.value.param == "execution.options.engine"


@needs_native
def test_without_a_compiler_torch_has_to_do(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert isinstance(encoder_of(tiny.bundle), NativeEncoder)
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    monkeypatch.setenv("HEADPOND_CACHE", str(tmp_path))
    native_library.library.cache_clear()
    try:
        encoder = encoder_of(tiny.bundle)
        assert isinstance(encoder, TorchEncoder)
        np.testing.assert_allclose(
            encoder.encode(SEQUENCES[:1]), tiny.rows(SEQUENCES[0]), atol=1e-5, rtol=1e-5
        )
        with pytest.raises(BundleError, match="no-compiler"):
            encoder_of(tiny.executed("bfloat16", quantization="int8"))
    finally:
        native_library.library.cache_clear()


@needs_native
def test_weights_take_what_the_planner_is_told(tiny: Tiny) -> None:
    counted = sum(
        parameter.numel()
        for name, parameter in tiny.reference.named_parameters()
        if not name.startswith("pooler")
    )
    products = 2 * (4 * 64 * 64 + 2 * 64 * 96)
    assert encoder_of(tiny.bundle).weight_bytes == 4 * counted
    assert encoder_of(tiny.executed("bfloat16")).weight_bytes == 2 * counted
    int8 = encoder_of(tiny.executed("bfloat16", quantization="int8"))
    assert int8.weight_bytes == 2 * counted - products


def without(bundle: Bundle, name: str) -> Bundle:
    files = {key: path for key, path in bundle.files.items() if key != name}
    return Bundle(manifest=bundle.manifest, root=bundle.root, files=files)


CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "vocab_size": len(VOCAB),
    "max_position_embeddings": POSITIONS,
}
MISFITS: dict[str, tuple[Callable[[Bundle], Bundle], str, str]] = {
    "no weights": (lambda b: without(b, "weights"), "artifacts", "no artifact 'weights'"),
    "another model": (
        lambda b: changed(b, architecture="BertForMaskedLM"),
        "execution.architecture",
        "BertModel",
    ),
    "a decoder": (
        lambda b: with_file(b, "config", CONFIG | {"is_decoder": True}),
        "artifacts.config",
        "is_decoder",
    ),
    "relative positions": (
        lambda b: with_file(b, "config", CONFIG | {"position_embedding_type": "relative_key"}),
        "artifacts.config",
        "position_embedding_type",
    ),
    "another family": (
        lambda b: with_file(b, "config", CONFIG | {"model_type": "mpnet"}),
        "artifacts.config",
        "mpnet",
    ),
    "uneven heads": (
        lambda b: with_file(b, "config", CONFIG | {"num_attention_heads": 3}),
        "artifacts.config",
        "3 heads",
    ),
    "more layers than weights": (
        lambda b: with_file(b, "config", CONFIG | {"num_hidden_layers": 3}),
        "artifacts.weights",
        "encoder.layer.2",
    ),
    "narrower than its weights": (
        lambda b: with_file(b, "config", CONFIG | {"intermediate_size": 64}),
        "artifacts.weights",
        "intermediate",
    ),
    "a smaller vocabulary": (
        lambda b: with_file(b, "config", CONFIG | {"vocab_size": len(VOCAB) - 1}),
        "artifacts.weights",
        "word_embeddings",
    ),
    "no tokenizer": (
        lambda b: with_file(b, "tokenizer", {"model": "none"}),
        "artifacts.tokenizer",
        "tokenizer",
    ),
    "an unknown option": (
        lambda b: changed(b, options={"quantisation": "int8"}),
        "execution.options.quantisation",
        "quantisation",
    ),
    "two ways to compute": (
        lambda b: changed(b, options={"engine": "torch", "quantization": "int8"}),
        "execution.options.quantization",
        "native",
    ),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_what_does_not_fit_is_refused(tiny: Tiny, misfit: str) -> None:
    change, param, message = MISFITS[misfit]
    with pytest.raises(BundleError, match=message) as refusal:
        encoder_of(change(tiny.bundle))
    assert refusal.value.param == param
