"""The embedding engine over tiny encoders, against transformers and pooling by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings, Immediate, Json, Outcome
from headpond.errors import BundleError, ContextLengthExceeded, EngineFailed, InvalidRequest
from headpond.units import Work
from headpond_workloads.embedding.engine.engine import EmbeddingEngine
from headpond_workloads.embedding.engine.load import load
from headpond_workloads.embedding.items import Description, Embedding, EmbedItem, Truncation
from headpond_workloads.embedding.record import record
from headpond_workloads.encoders.items import DescribeItem
from headpond_workloads.encoders.tokens import Floats, Tokens
from workloads.encoders.tiny import POSITIONS, VOCAB, Tiny, save_tiny, with_file

SETTINGS = EngineSettings(state_bytes=2**20, threads=2)
TEXTS = ["The water mill.", "a", "", "what turns the mill? water, 9 of 10 times", "東 é!"]
PROMPTS = {"prompts": {"query": "the mill: ", "passage": "water "}, "default_prompt_name": None}
LONG = "water mill " * 100


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(tiny: Tiny) -> EmbeddingEngine:
    return load(tiny.bundle, SETTINGS)


@pytest.fixture(scope="module")
def prompted(tiny: Tiny) -> EmbeddingEngine:
    return load(with_file(tiny.bundle, "prompts", PROMPTS), SETTINGS)


def run(engine: EmbeddingEngine, *items: EmbedItem) -> list[Outcome[Embedding]]:
    return engine.run([engine.plan(item, "tenant") for item in items])


def numbers(outcome: Outcome[Embedding]) -> Floats:
    if outcome.error is not None:
        raise outcome.error
    (embedding,) = outcome.outputs
    values = np.frombuffer(embedding.vectors, np.float32)
    return values.reshape(-1, embedding.dimensions)


def vector(engine: EmbeddingEngine, item: EmbedItem) -> Floats:
    (row,) = numbers(run(engine, item)[0])
    found: Floats = row
    return found


def tokens(engine: EmbeddingEngine, item: EmbedItem) -> Tokens:
    return engine.plan(item, "tenant").prepared.tokens


def token_ids(engine: EmbeddingEngine, item: EmbedItem) -> list[int]:
    return [*map(int, tokens(engine, item).token_ids)]


def unit(values: Floats) -> Floats:
    found: Floats = values / np.linalg.norm(values)
    return found


POOLINGS: dict[str, Callable[[Floats], Floats]] = {
    "cls_token": lambda rows: rows[0],
    "mean_tokens": lambda rows: rows.mean(axis=0),
    "max_tokens": lambda rows: rows.max(axis=0),
    "mean_sqrt_len_tokens": lambda rows: rows.sum(axis=0) / np.sqrt(len(rows)),
}


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_pooled_and_normalised_rows_of_transformers(tiny: Tiny, pooling: str) -> None:
    bundle = with_file(tiny.bundle, "pooling", {f"pooling_mode_{pooling}": True})
    engine = load(bundle, SETTINGS)
    items = [EmbedItem(text=text) for text in TEXTS]
    for item, outcome in zip(items, run(engine, *items), strict=True):
        expected = unit(POOLINGS[pooling](tiny.rows(tokens(engine, item))))
        np.testing.assert_allclose(numbers(outcome)[0], expected, atol=2e-6)


def test_newer_folders_name_the_pooling(tiny: Tiny) -> None:
    file = {"embedding_dimension": 64, "pooling_mode": "cls", "include_prompt": True}
    engine = load(with_file(tiny.bundle, "pooling", file), SETTINGS)
    expected = unit(tiny.rows(tokens(engine, EmbedItem(text="the mill")))[0])
    np.testing.assert_allclose(vector(engine, EmbedItem(text="the mill")), expected, atol=2e-6)


def test_a_folder_without_normalize_gives_vectors_as_they_are(tiny: Tiny) -> None:
    modules = [{"type": "sentence_transformers.models.Transformer"}, {"type": "x.y.Pooling"}]
    engine = load(with_file(tiny.bundle, "modules", modules), SETTINGS)
    item = EmbedItem(text="the mill")
    raw = tiny.rows(tokens(engine, item)).mean(axis=0)
    np.testing.assert_allclose(vector(engine, item), raw, atol=1e-5)
    asked = vector(engine, replace(item, normalize=True))
    np.testing.assert_allclose(asked, unit(raw), atol=2e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pooling", ["cls_token", "mean_tokens"])
def test_a_vector_is_the_same_to_the_bit_in_every_batch(
    tiny: Tiny, dtype: str, pooling: str
) -> None:
    bundle = with_file(
        tiny.executed(dtype, engine="auto"), "pooling", {f"pooling_mode_{pooling}": 1}
    )
    engine = load(bundle, SETTINGS)
    if engine.lanes == 1:
        pytest.skip("only the native forward promises this")
    items = [EmbedItem(text=text) for text in (*TEXTS, LONG)]
    alone = [run(engine, item)[0] for item in items]
    assert run(engine, *items) == alone
    mixed = run(engine, *items[::-1], replace(items[0], each_token=True))
    assert mixed[:-1] == alone[::-1]


def test_fewer_dimensions_are_the_first_ones_renormalised(engine: EmbeddingEngine) -> None:
    item = EmbedItem(text="the mill")
    full = vector(engine, item)
    short = vector(engine, replace(item, dimensions=9))
    np.testing.assert_allclose(short, unit(full[:9]), atol=1e-6)
    np.testing.assert_array_equal(vector(engine, replace(item, dimensions=64)), full)
    raw = vector(engine, replace(item, dimensions=9, normalize=False))
    assert np.linalg.norm(raw) != pytest.approx(1.0, abs=1e-3)
    np.testing.assert_allclose(unit(raw), short, atol=1e-6)


@pytest.mark.parametrize("dimensions", [0, -1, 65, 10**9])
def test_dimensions_that_there_are_not_are_refused(
    engine: EmbeddingEngine, dimensions: int
) -> None:
    with pytest.raises(InvalidRequest, match="1 to 64") as refusal:
        engine.plan(EmbedItem(text="a", dimensions=dimensions), "tenant")
    assert refusal.value.param == "dimensions"


def test_each_tokens_vector_can_be_had(tiny: Tiny, engine: EmbeddingEngine) -> None:
    item = EmbedItem(text="the water mill", each_token=True)
    rows = tiny.rows(tokens(engine, item))
    assert rows.shape == (5, 64)
    np.testing.assert_allclose(numbers(run(engine, item)[0]), rows, atol=1e-5)
    short = numbers(run(engine, replace(item, normalize=True, dimensions=7))[0])
    np.testing.assert_allclose(short, [unit(row[:7]) for row in rows], atol=2e-6)


class TestPrompts:
    @pytest.mark.parametrize(
        ("item", "text"),
        [
            (EmbedItem(text="a"), "a"),
            (EmbedItem(text="a", prompt="query"), "the mill: a"),
            (EmbedItem(text="a", preferred_prompts=("none", "passage", "query")), "water a"),
            (EmbedItem(text="a", prompt="query", preferred_prompts=("passage",)), "the mill: a"),
            (EmbedItem(text="a", preferred_prompts=("none",)), "a"),
        ],
    )
    def test_are_put_before_the_text(
        self, prompted: EmbeddingEngine, engine: EmbeddingEngine, item: EmbedItem, text: str
    ) -> None:
        assert token_ids(prompted, item) == token_ids(engine, EmbedItem(text=text))

    def test_the_default_is_used_when_nobody_says(
        self, tiny: Tiny, engine: EmbeddingEngine
    ) -> None:
        file = PROMPTS | {"default_prompt_name": "passage"}
        defaulted = load(with_file(tiny.bundle, "prompts", file), SETTINGS)
        expected = token_ids(engine, EmbedItem(text="water a"))
        assert token_ids(defaulted, EmbedItem(text="a")) == expected
        ids = tuple(expected[2:-1])
        assert token_ids(defaulted, EmbedItem(text=ids)) == expected

    def test_an_unknown_one_is_refused(self, prompted: EmbeddingEngine) -> None:
        with pytest.raises(InvalidRequest, match="passage, query") as refusal:
            prompted.plan(EmbedItem(text="a", prompt="nope"), "tenant")
        assert refusal.value.param == "prompt_name"


class TestLength:
    IDS = tuple(at % (len(VOCAB) - 4) + 4 for at in range(200))

    def test_the_end_is_cut_off(self, engine: EmbeddingEngine) -> None:
        found = token_ids(engine, EmbedItem(text=self.IDS))
        assert found == [2, *self.IDS[: POSITIONS - 2], 3]

    def test_or_the_start(self, engine: EmbeddingEngine) -> None:
        found = token_ids(engine, EmbedItem(text=self.IDS, truncation=Truncation.START))
        assert found == [2, *self.IDS[-(POSITIONS - 2) :], 3]

    def test_or_the_text_is_refused(self, engine: EmbeddingEngine) -> None:
        item = EmbedItem(text=self.IDS, truncation=Truncation.NONE, param="input.2")
        with pytest.raises(ContextLengthExceeded, match=f"202 .* {POSITIONS} ") as refusal:
            engine.plan(item, "tenant")
        assert refusal.value.param == "input.2"
        fitting = replace(item, text=self.IDS[: POSITIONS - 2])
        assert len(token_ids(engine, fitting)) == POSITIONS

    def test_a_caller_may_want_less(self, engine: EmbeddingEngine) -> None:
        item = EmbedItem(text=self.IDS, max_tokens=5)
        assert token_ids(engine, item) == [2, *self.IDS[:3], 3]
        with pytest.raises(ContextLengthExceeded, match=" 5 "):
            engine.plan(replace(item, truncation=Truncation.NONE), "tenant")
        more = replace(item, max_tokens=10**6)
        assert len(token_ids(engine, more)) == POSITIONS

    def test_but_not_less_than_a_token(self, engine: EmbeddingEngine) -> None:
        with pytest.raises(InvalidRequest, match="takes 3") as refusal:
            engine.plan(EmbedItem(text="a", max_tokens=2), "tenant")
        assert refusal.value.param == "max_tokens"

    @pytest.mark.parametrize("bound", ["folder", "tokenizer", "bundle"])
    def test_the_model_or_the_bundle_may_take_less(self, tiny: Tiny, bound: str) -> None:
        bundle = tiny.bundle
        if bound == "folder":
            bundle = with_file(bundle, "sentence_config", {"max_seq_length": 16})
        elif bound == "tokenizer":
            bundle = with_file(bundle, "tokenizer_config", {"model_max_length": 16})
        else:
            manifest = bundle.manifest.model_copy(update={"limits": {"context_tokens": 16}})
            bundle = replace(bundle, manifest=manifest)
        engine = load(bundle, SETTINGS)
        assert len(token_ids(engine, EmbedItem(text=self.IDS))) == 16
        assert engine.symbols["context_tokens"] == (POSITIONS if bound == "bundle" else 16)


ODD = [
    "",
    " ",
    "\n\t\r",
    "\0",
    "\u200b\ufeff",
    "👋🏽" * 50,
    "a" * 5000,
    "\ud7ff\ue000",
    "é" * 300,
    ".",
]


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_have_finite_vectors(engine: EmbeddingEngine, text: str) -> None:
    assert np.linalg.norm(vector(engine, EmbedItem(text=text))) == pytest.approx(1.0, abs=1e-5)


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_any_texts_have_finite_vectors(engine: EmbeddingEngine, texts: Sequence[str]) -> None:
    for outcome in run(engine, *(EmbedItem(text=text) for text in texts)):
        assert np.linalg.norm(numbers(outcome)) == pytest.approx(1.0, abs=1e-5)


def test_ids_out_of_the_vocabulary_are_refused(engine: EmbeddingEngine) -> None:
    with pytest.raises(InvalidRequest, match=str(len(VOCAB))) as refusal:
        engine.plan(EmbedItem(text=(5, len(VOCAB)), param="input.0"), "tenant")
    assert refusal.value.param == "input.0"


def test_a_text_whose_vector_is_not_finite_fails_alone(tmp_path: Path) -> None:
    tiny = save_tiny(tmp_path)
    mill = VOCAB.index("mill")
    good = run(load(tiny.bundle, SETTINGS), EmbedItem(text="water"))
    weights = load_file(tiny.bundle.files["weights"])
    weights["embeddings.word_embeddings.weight"][mill, 3] = float("nan")
    save_file(weights, tiny.bundle.files["weights"])
    engine = load(tiny.bundle, SETTINGS)
    texts = ("water", "the mill", "water")
    first, broken, last = run(engine, *(EmbedItem(text=text) for text in texts))
    assert isinstance(broken.error, EngineFailed)
    assert [first] == good
    assert [last] == good


def test_work_is_the_tokens_and_shape_the_values_too(engine: EmbeddingEngine) -> None:
    plan = engine.plan(EmbedItem(text="the water mill"), "tenant")
    assert plan.shape == {"tokens": 5, "values": 64}
    some = engine.plan(EmbedItem(text="the water mill", dimensions=3), "tenant")
    assert some.shape == {"tokens": 5, "values": 3}
    every = engine.plan(EmbedItem(text="the water mill", each_token=True), "tenant")
    assert every.shape == {"tokens": 5, "values": 320}
    (outcome,) = engine.run([plan])
    assert outcome.work == record.cost(plan.shape) == Work(input_tokens=5)
    assert outcome.outputs[0].tokens == 5


def test_the_model_describes_itself_without_a_device(prompted: EmbeddingEngine) -> None:
    answer = prompted.plan(DescribeItem(), "tenant").answer
    assert isinstance(answer, Immediate)
    (found,) = answer.outputs
    assert isinstance(found, Description)
    assert (found.model, found.dtype, found.pooling) == ("tiny@1.0.0", "float32", "mean")
    assert (found.dimensions, found.max_tokens) == (64, POSITIONS)
    assert found.max_batch_tokens == prompted.budget
    assert found.prompts == ("query", "passage")


def test_it_is_what_the_record_says(tiny: Tiny, engine: EmbeddingEngine) -> None:
    assert set(engine.symbols) == set(record.symbols)
    assert set(engine.tallies()) == {tally.name for tally in record.tallies}
    small = load(tiny.executed(batch_tokens=7), SETTINGS)
    assert small.budget == 7


def test_fixtures_are_texts_or_token_ids(engine: EmbeddingEngine) -> None:
    seen = engine.observe({"text": "the mill", "dimensions": 3})
    ids = [2, VOCAB.index("the"), VOCAB.index("mill"), 3]
    assert seen["input_ids"] == ids
    expected = vector(engine, EmbedItem(text="the mill", dimensions=3))
    assert seen["vector"] == pytest.approx(expected, abs=1e-6)
    assert engine.observe({"token_ids": [*ids[1:3]], "dimensions": 3}) == seen
    wrong: list[dict[str, Json]] = [{}, {"text": "a", "token_ids": [5]}, {"words": "a"}]
    for given_wrongly in wrong:
        with pytest.raises(BundleError):
            engine.observe(given_wrongly)


MISFITS: dict[str, tuple[str, object, str]] = {
    "a dense layer": ("modules", [{"type": "a.Pooling"}, {"type": "a.Dense"}], "Dense"),
    "no pooling": ("modules", [{"type": "a.Transformer"}], "Pooling"),
    "two poolings": (
        "pooling",
        {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
        "cls_token with max_tokens",
    ),
    "an unknown pooling": ("pooling", {"pooling_mode": "lasttoken"}, "lasttoken"),
    "pooling beside the prompt": (
        "pooling",
        {"pooling_mode_mean_tokens": True, "include_prompt": False},
        "prompt",
    ),
    "a default prompt that is not there": ("prompts", {"default_prompt_name": "query"}, "query"),
    "no room for a token": ("sentence_config", {"max_seq_length": 2}, "2 tokens"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_folders_that_would_be_computed_wrong_are_refused(tiny: Tiny, misfit: str) -> None:
    name, content, message = MISFITS[misfit]
    with pytest.raises(BundleError, match=message):
        load(with_file(tiny.bundle, name, content), SETTINGS)


def test_a_graph_needs_its_artifact(tiny: Tiny) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(BundleError, match="graph"):
        load(tiny.executed(engine="onnx"), SETTINGS)
    broken = Path(tiny.bundle.root / "broken.onnx")
    broken.write_bytes(b"\x08\x08 no graph")
    bundle = tiny.executed(engine="onnx")
    bundle = Bundle(
        manifest=bundle.manifest, root=bundle.root, files={**bundle.files, "graph": broken}
    )
    with pytest.raises(BundleError, match="can't be loaded") as refusal:
        load(bundle, SETTINGS)
    assert refusal.value.param == "artifacts.graph"
