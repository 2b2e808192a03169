"""The reranking engine over tiny encoders, against transformers' classifiers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings, Immediate, Outcome
from headpond.errors import BundleError, ContextLengthExceeded, EngineFailed, InvalidRequest
from headpond.units import Work
from headpond_workloads.encoders.items import DescribeItem
from headpond_workloads.encoders.tokenizer import Tokenizer
from headpond_workloads.encoders.tokens import Floats, Tokens
from headpond_workloads.reranking.engine.engine import RerankingEngine
from headpond_workloads.reranking.engine.late_interaction import LateInteraction
from headpond_workloads.reranking.engine.load import load
from headpond_workloads.reranking.items import Description, PairItem, Score
from headpond_workloads.reranking.record import record
from workloads.encoders.tiny import POSITIONS, VOCAB, Tiny, make_tokenizer, save_tiny

SETTINGS = EngineSettings(state_bytes=2**20, threads=2)
QUERY = "what turns the mill?"
DOCUMENTS = ["Water.", "", "the miller, 9 of 10 times", "a b c d e f g h " * 12, "東 é!"]
PAIRS = [PairItem(query=QUERY, document=document) for document in DOCUMENTS]
CLASSIFIERS = {
    "one label": ("BertForSequenceClassification", {"num_labels": 1}),
    "three labels": ("BertForSequenceClassification", {"num_labels": 3}),
    "roberta": ("RobertaForSequenceClassification", {"num_labels": 2}),
    "distilbert": ("DistilBertForSequenceClassification", {"num_labels": 2}),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("cross")
    return save_tiny(folder, "BertForSequenceClassification", num_labels=1)


@pytest.fixture(scope="module")
def cross(tiny: Tiny) -> RerankingEngine:
    return load(tiny.bundle, SETTINGS)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return save_tiny(tmp_path_factory.mktemp("late"))


@pytest.fixture(scope="module")
def late(plain: Tiny) -> RerankingEngine:
    return load(plain.executed(scoring="maxsim"), SETTINGS)


def run(engine: RerankingEngine, *items: PairItem) -> list[Outcome[Score]]:
    return engine.run([engine.plan(item, "tenant") for item in items])


def score(outcome: Outcome[Score]) -> Score:
    if outcome.error is not None:
        raise outcome.error
    return outcome.outputs[0]


def sequences(engine: RerankingEngine, item: PairItem) -> tuple[Tokens, ...]:
    return engine.plan(item, "tenant").prepared.sequences


def token_ids(engine: RerankingEngine, item: PairItem) -> list[list[int]]:
    return [each.token_ids.tolist() for each in sequences(engine, item)]


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    architecture, changes = CLASSIFIERS[kind]
    tiny = save_tiny(tmp_path, architecture, **changes)
    engine = load(tiny.bundle, SETTINGS)
    items = [*PAIRS, PairItem(query="the mill", document=None)]
    for item, outcome in zip(items, run(engine, *items), strict=True):
        (tokens,) = sequences(engine, item)
        expected = tiny.logits(tokens)
        found = score(outcome)
        assert found.logits == pytest.approx(expected.tolist(), abs=2e-5)
        one = len(expected) == 1
        scores = torch.sigmoid(expected) if one else torch.softmax(expected, dim=0)
        assert found.scores == pytest.approx(scores.tolist(), abs=1e-5)
        assert found.tokens == len(tokens)


def test_labels_that_may_hold_together_have_scores_of_their_own(tmp_path: Path) -> None:
    tiny = save_tiny(
        tmp_path,
        "BertForSequenceClassification",
        id2label={0: "wet", 1: "old", 2: "loud"},
        label2id={"wet": 0, "old": 1, "loud": 2},
        problem_type="multi_label_classification",
    )
    engine = load(tiny.bundle, SETTINGS)
    found = score(run(engine, PAIRS[0])[0])
    expected = [1 / (1 + math.exp(-logit)) for logit in found.logits]
    assert found.scores == pytest.approx(expected, abs=1e-6)
    (described,) = _answer(engine).outputs
    assert isinstance(described, Description)
    assert described.labels == ("wet", "old", "loud")


def _answer(engine: RerankingEngine) -> Immediate:
    answer = engine.plan(DescribeItem(), "tenant").answer
    assert answer is not None
    return answer


def test_pairs_are_two_texts_in_one_sequence(cross: RerankingEngine) -> None:
    (tokens,) = sequences(cross, PairItem(query="the", document="water mill"))
    the, water, mill = (VOCAB.index(word) for word in ("the", "water", "mill"))
    assert tokens.token_ids.tolist() == [2, the, 3, water, mill, 3]
    assert tokens.type_ids.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("options", [{}, {"scoring": "maxsim"}])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_score_is_the_same_to_the_bit_in_every_batch(
    tiny: Tiny, plain: Tiny, dtype: str, options: dict[str, str]
) -> None:
    engine = load((plain if options else tiny).executed(dtype, **options), SETTINGS)
    if engine.lanes == 1:
        pytest.skip("only the native forward promises this")
    items = [*PAIRS, PairItem(query="water", document=DOCUMENTS[2])]
    alone = [run(engine, item)[0] for item in items]
    assert run(engine, *items) == alone
    assert run(engine, *items[::-1]) == alone[::-1]


class TestCutting:
    """Documents are cut, queries never."""

    def test_the_documents_end_is_cut_off(self, cross: RerankingEngine) -> None:
        item = PairItem(query="the mill", document="water a " * 90)
        ((*ids,),) = token_ids(cross, item)
        the, water, mill = (VOCAB.index(word) for word in ("the", "water", "mill"))
        assert len(ids) == POSITIONS
        assert ids[:6] == [2, the, mill, 3, water, VOCAB.index("a")]
        assert ids[-1] == 3

    def test_or_its_start(self, cross: RerankingEngine) -> None:
        item = PairItem(query="the", document="a " * 90 + "water mill", keep_start=False)
        ((*ids,),) = token_ids(cross, item)
        assert len(ids) == POSITIONS
        assert ids[-3:] == [VOCAB.index("water"), VOCAB.index("mill"), 3]

    @pytest.mark.parametrize("keep_start", [True, False])
    def test_a_caller_may_want_less(self, cross: RerankingEngine, *, keep_start: bool) -> None:
        item = PairItem(
            query="the",
            document="water mill a",
            max_document_tokens=2,
            truncate=False,
            keep_start=keep_start,
        )
        kept = ("water", "mill") if keep_start else ("mill", "a")
        ((*ids,),) = token_ids(cross, item)
        assert ids == [2, VOCAB.index("the"), 3, *map(VOCAB.index, kept), 3]

    def test_a_document_that_may_not_be_cut_is_refused(self, cross: RerankingEngine) -> None:
        item = PairItem(query="the", document="a " * 100, truncate=False, param="documents.4")
        with pytest.raises(ContextLengthExceeded, match=f"104 .* {POSITIONS} ") as refusal:
            cross.plan(item, "tenant")
        assert refusal.value.param == "documents.4"

    @pytest.mark.parametrize("engine", ["cross", "late"])
    def test_a_query_that_leaves_no_room_is_refused(
        self, engine: str, request: pytest.FixtureRequest
    ) -> None:
        loaded: RerankingEngine = request.getfixturevalue(engine)
        item = PairItem(query="a " * POSITIONS, document="water")
        with pytest.raises(ContextLengthExceeded, match=f"{POSITIONS - 1}|{POSITIONS}") as refusal:
            loaded.plan(item, "tenant")
        assert refusal.value.param == "query"

    def test_the_longest_query_leaves_room_for_a_token(self, cross: RerankingEngine) -> None:
        item = PairItem(query="a " * (POSITIONS - 4), document="water mill")
        ((*ids,),) = token_ids(cross, item)
        assert ids[-2:] == [VOCAB.index("water"), 3]
        assert len(ids) == POSITIONS

    def test_no_token_at_all_is_refused(self, cross: RerankingEngine) -> None:
        item = PairItem(query="a", document="b", max_document_tokens=0, param="documents.0")
        with pytest.raises(InvalidRequest) as refusal:
            cross.plan(item, "tenant")
        assert refusal.value.param == "documents.0"

    def test_a_bundle_may_take_less(self, tiny: Tiny) -> None:
        manifest = tiny.bundle.manifest.model_copy(update={"limits": {"context_tokens": 12}})
        engine = load(replace(tiny.bundle, manifest=manifest), SETTINGS)
        item = PairItem(query="the mill", document=DOCUMENTS[3])
        assert engine.plan(item, "tenant").shape == {"tokens": 12}
        assert engine.symbols["context_tokens"] == POSITIONS

    def test_single_texts_are_cut_too(self, cross: RerankingEngine) -> None:
        ((*ids,),) = token_ids(cross, PairItem(query="a " * 200, document=None))
        assert len(ids) == POSITIONS
        assert ids[-2:] == [VOCAB.index("a"), 3]


ODD = ["", " ", "\0", "👋🏽" * 40, "a" * 3000, "\u200b"]


@pytest.mark.parametrize("engine", ["cross", "late"])
@pytest.mark.parametrize("text", ODD)
def test_odd_texts_have_finite_scores(
    engine: str, text: str, request: pytest.FixtureRequest
) -> None:
    loaded: RerankingEngine = request.getfixturevalue(engine)
    items = [PairItem(query="the mill", document=text), PairItem(query=text[:9], document="water")]
    for outcome in run(loaded, *items):
        assert all(map(math.isfinite, (*score(outcome).logits, *score(outcome).scores)))


@settings(max_examples=30, deadline=None)
@given(query=st.text(max_size=20), documents=st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_any_texts_have_scores_from_0_to_1(
    cross: RerankingEngine, query: str, documents: Sequence[str]
) -> None:
    for outcome in run(cross, *(PairItem(query=query, document=each) for each in documents)):
        assert 0.0 <= score(outcome).scores[0] <= 1.0


def test_half_a_character_is_refused_where_it_is(cross: RerankingEngine) -> None:
    for item, param in (
        (PairItem(query="\ud800", document="a", param="documents.1"), "query"),
        (PairItem(query="a", document="\ud800", param="documents.1"), "documents.1"),
    ):
        with pytest.raises(InvalidRequest) as refusal:
            cross.plan(item, "tenant")
        assert refusal.value.param == param


def test_a_pair_whose_score_is_not_finite_fails_alone(tmp_path: Path) -> None:
    tiny = save_tiny(tmp_path, "BertForSequenceClassification", num_labels=1)
    good = run(load(tiny.bundle, SETTINGS), PairItem(query="the", document="water"))
    weights = load_file(tiny.bundle.files["weights"])
    weights["bert.embeddings.word_embeddings.weight"][VOCAB.index("mill"), 3] = float("inf")
    save_file(weights, tiny.bundle.files["weights"])
    engine = load(tiny.bundle, SETTINGS)
    items = [PairItem(query="the", document=text) for text in ("water", "mill", "water")]
    first, broken, last = run(engine, *items)
    assert isinstance(broken.error, EngineFailed)
    assert [first] == good
    assert [last] == good


def unit(rows: Floats) -> Floats:
    found: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


class TestLateInteraction:
    def test_every_query_token_finds_its_best_match(
        self, plain: Tiny, late: RerankingEngine
    ) -> None:
        for item, outcome in zip(PAIRS, run(late, *PAIRS), strict=True):
            query, document = (unit(plain.rows(tokens)) for tokens in sequences(late, item))
            best = (query @ document.T).max(axis=1)
            found = score(outcome)
            assert found.scores == pytest.approx([best.mean()], abs=1e-5)
            assert found.logits == pytest.approx([best.sum()], abs=1e-4)
            assert found.tokens == len(query) + len(document)

    def test_a_text_answers_itself_best(self, late: RerankingEngine) -> None:
        items = [PairItem(query="the mill", document=text) for text in ("the mill", "water")]
        same, other = (score(outcome).scores[0] for outcome in run(late, *items))
        assert same == pytest.approx(1.0, abs=1e-5)
        assert other < same

    def test_equal_queries_are_computed_once(self) -> None:
        encoder = Recorder()
        scorer = LateInteraction(
            encoder=encoder,
            tokenizer=Tokenizer(make_tokenizer(), len(VOCAB)),
            labels=("similarity",),
            context_tokens=64,
            max_tokens=64,
        )
        items = [*PAIRS, PairItem(query="water", document="a"), PAIRS[0]]
        pairs = [scorer.pair(item) for item in items]
        verdicts = scorer.score(pairs)
        assert encoder.sequences == 2 + len(items)
        assert verdicts[-1] == verdicts[0]

    def test_both_texts_have_the_whole_context(self, late: RerankingEngine) -> None:
        item = PairItem(query="a " * (POSITIONS - 2), document="water " * 200)
        assert [len(ids) for ids in token_ids(late, item)] == [POSITIONS, POSITIONS]
        assert late.symbols["context_tokens"] == 2 * POSITIONS

    def test_there_must_be_a_document(self, late: RerankingEngine) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            late.plan(PairItem(query="a", document=None, param="inputs"), "tenant")
        assert refusal.value.param == "inputs"


class Recorder:
    """An encoder whose vectors say nothing, and that counts what it is given."""

    lanes = 1
    express_lanes = 0
    weight_bytes = 0
    batch_tokens = 64
    padded_tokens = 0

    def __init__(self) -> None:
        self.sequences = 0

    def key(self, tokens: int) -> tuple[int, ...]:
        return ()

    def encode(self, sequences: Sequence[Tokens], *, first_only: bool = False) -> Floats:
        self.sequences += len(sequences)
        ids = np.concatenate([each.token_ids for each in sequences])
        return np.stack([ids, ids + 1], axis=1).astype(np.float32)


def test_work_and_shape_are_the_tokens(cross: RerankingEngine) -> None:
    plan = cross.plan(PairItem(query="the", document="water mill"), "tenant")
    assert plan.shape == {"tokens": 6}
    (outcome,) = cross.run([plan])
    assert outcome.work == record.cost(plan.shape) == Work(input_tokens=6)


def test_the_model_describes_itself_without_a_device(cross: RerankingEngine) -> None:
    (found,) = _answer(cross).outputs
    assert isinstance(found, Description)
    assert (found.model, found.dtype, found.labels) == ("tiny@1.0.0", "float32", ("LABEL_0",))
    assert found.max_tokens == POSITIONS
    assert found.max_batch_tokens == cross.budget


@pytest.mark.parametrize("engine", ["cross", "late"])
def test_it_is_what_the_record_says(engine: str, request: pytest.FixtureRequest) -> None:
    loaded: RerankingEngine = request.getfixturevalue(engine)
    assert set(loaded.symbols) == set(record.symbols)
    assert set(loaded.tallies()) == {tally.name for tally in record.tallies}


def test_fixtures_are_pairs(cross: RerankingEngine) -> None:
    seen = cross.observe({"query": "the", "document": "water mill"})
    item = PairItem(query="the", document="water mill")
    assert seen["input_ids"] == token_ids(cross, item)[0]
    assert seen["scores"] == pytest.approx(score(run(cross, item)[0]).scores, abs=1e-6)
    with pytest.raises(BundleError):
        cross.observe({"text": "the"})


def test_what_gives_no_scores_is_refused(tiny: Tiny, plain: Tiny) -> None:
    with pytest.raises(BundleError, match="BertModel gives no scores") as refusal:
        load(plain.bundle, SETTINGS)
    assert refusal.value.param == "execution.architecture"
    files = {name: path for name, path in tiny.bundle.files.items() if name != "weights"}
    bundle = Bundle(manifest=tiny.bundle.manifest, root=tiny.bundle.root, files=files)
    with pytest.raises(BundleError, match="weights"):
        load(bundle, SETTINGS)
