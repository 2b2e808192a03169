"""How right our bundles are on real labelled inputs: search, reranking, and photos.

- Search: MRR@10 and the part of queries whose answer comes first, among docstrings.
- Reranking: the same, of the first 20 that BM25 found, beside BM25's own order and the
  embedding's of the same 20.
- Photos: the few labelled ones that scikit-image ships, each also mirrored, at half the size
  and as a JPEG of quality 30. They show that labels and preprocessing go together, not more.

The engines are called directly; what HTTP answers is the same.

    make bench SUBJECT=accuracy
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from docstrings import LIBRARIES, SearchSet, bm25, search_set
from harness import machine, versions, write_results
from headpond.bundle.loading import start_engine
from headpond.bundle.store import open_bundle
from headpond.engine import EngineSettings, LoadedFormed
from headpond.record import WorkloadRecord
from headpond_workloads.embedding.items import EmbedItem
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.reranking.items import PairItem
from headpond_workloads.reranking.record import record as reranking
from headpond_workloads.vision.items import ImageItem, Selection
from headpond_workloads.vision.record import record as vision
from tables import Field, Measure, table_cases

BUNDLES = Path(__file__).parents[1] / "bundles"
EMBEDDERS = (
    "all-minilm-l6-v2-fp32",
    "all-minilm-l6-v2",
    "all-minilm-l6-v2-int8",
    "all-minilm-l6-v2-int8-onnx",
)
RERANKERS = ("minilm-maxsim",)
CLASSIFIERS = ("efficientnet-lite0",)
PHOTOS: Mapping[str, frozenset[str]] = {
    "chelsea.png": frozenset({"tabby", "tiger cat", "Egyptian cat"}),
    "coffee.png": frozenset({"espresso"}),
    "camera.png": frozenset({"tripod", "reflex camera"}),
    "clock_motion.png": frozenset({"analog clock", "wall clock"}),
    "motorcycle_left.png": frozenset({"moped", "motor scooter"}),
    "rocket.jpg": frozenset({"missile", "projectile"}),
}
"""Of ImageNet's labels those that a person would accept for the main thing to be seen."""

_CANDIDATES = 20
_BATCH = 8
_RANKED = Measure(key="mrr", unit="MRR@10"), Measure(key="first", unit="answer first")
_SEEN = Measure(key="first", unit="label first"), Measure(key="five", unit="among 5")

Engine = LoadedFormed[Any, Any, Any]
"""Any engine of formed batches; its items and payloads are its own types."""


def engine_of(record: WorkloadRecord, name: str) -> Engine:
    """Load a bundle's engine; its fixtures are checked elsewhere."""
    settings = EngineSettings(state_bytes=256 * 2**20, device="cpu", threads=1)
    engine: Engine = start_engine(record, open_bundle(BUNDLES / name), settings)  # type: ignore[assignment]
    return engine


def run(engine: Engine, items: Sequence[object]) -> list[Any]:
    """Compute items in batches of equal keys; return what each gave."""
    plans = [engine.plan(item, "") for item in items]
    order = sorted(
        range(len(plans)), key=lambda at: (str(plans[at].key), max(plans[at].shape.values()))
    )
    given: dict[int, Any] = {}
    for start in range(0, len(order), _BATCH):
        part = order[start : start + _BATCH]
        keys = {plans[at].key for at in part}
        for key in keys:
            alike = [at for at in part if plans[at].key == key]
            for at, outcome in zip(alike, engine.run([plans[at] for at in alike]), strict=True):
                if outcome.error is not None:
                    raise outcome.error
                (given[at],) = outcome.outputs
    return [given[at] for at in range(len(plans))]


def ranked(places: Sequence[int | None]) -> dict[str, float]:
    """Return the figures of answers by their places, from 0; None is not among the first ten."""
    reciprocal = [0.0 if at is None else 1 / (at + 1) for at in places]
    return {
        "mrr": sum(reciprocal) / len(places),
        "first": sum(at == 0 for at in places) / len(places),
    }


def place(order: Sequence[int], answer: int) -> int | None:
    """Return where an answer is among the first ten."""
    first = list(order[:10])
    return first.index(answer) if answer in first else None


def found(engine: Engine, texts: SearchSet) -> list[NDArray[np.intp]]:
    """Return for each query the documents by their cosine, the nearest first."""

    def vectors(given: Sequence[str]) -> NDArray[np.float32]:
        payloads = run(engine, [EmbedItem(text=text) for text in given])
        return np.stack([np.frombuffer(each.vectors, "<f4") for each in payloads])

    likeness = vectors([query for query, _ in texts.queries]) @ vectors(texts.documents).T
    return [np.argsort(-row, kind="stable") for row in likeness]


def searched(texts: SearchSet) -> tuple[Field, list[list[int]]]:
    """Measure every embedder; return also the first one's orders."""
    rows: Field = {}
    kept: list[list[int]] = []
    for name in EMBEDDERS:
        orders = [order.tolist() for order in found(engine_of(embedding, name), texts)]
        places = [place(order, at) for order, (_, at) in zip(orders, texts.queries, strict=True)]
        rows[name] = {1: ranked(places)}
        kept = kept or orders
        print(name, rows[name][1], flush=True)
    return rows, kept


def reranked(texts: SearchSet, orders: Sequence[Sequence[int]], queries: int) -> Field:
    """Measure every reranker of what BM25 found, beside BM25 and an embedder's orders."""
    candidates = bm25(texts, _CANDIDATES)
    asked = list(zip(texts.queries, candidates, strict=True))[:queries]
    given = [place(each, answer) for (_, answer), each in asked]
    near = [
        place([at for at in order if at in each], answer)
        for ((_, answer), each), order in zip(asked, orders, strict=False)
    ]
    rows: Field = {"BM25": {1: ranked(given)}, f"cosine, {EMBEDDERS[0]}": {1: ranked(near)}}
    print(rows, flush=True)
    for name in RERANKERS:
        engine = engine_of(reranking, name)
        pairs = [
            PairItem(query=query, document=texts.documents[at])
            for (query, _), each in asked
            for at in each
        ]
        scores = iter([payload.scores[0] for payload in run(engine, pairs)])
        places = []
        for (_, answer), each in asked:
            score = {at: next(scores) for at in each}
            places.append(place(sorted(each, key=lambda at: -score[at]), answer))
        rows[name] = {1: ranked(places)}
        print(name, rows[name][1], flush=True)
    return rows


def pictures() -> list[tuple[bytes, frozenset[str]]]:
    """Return each photo and its variants, with the labels that are right."""
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise RuntimeError("pip install scikit-image")
    made = []
    for name, labels in PHOTOS.items():
        photo = Image.open(Path(spec.origin).parent / "data" / name).convert("RGB")
        half = photo.resize((photo.width // 2, photo.height // 2))
        made += [(_saved(each, "PNG"), labels) for each in (photo, ImageOps.mirror(photo), half)]
        made.append((_saved(photo, "JPEG"), labels))
    return made


def _saved(photo: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    photo.save(file, kind, **({"quality": 30} if kind == "JPEG" else {}))
    return file.getvalue()


def seen() -> Field:
    """Measure every classifier."""
    rows: Field = {}
    photos = pictures()
    for name in CLASSIFIERS:
        items = [ImageItem(data=data, selection=Selection(top_k=5)) for data, _ in photos]
        answers = [
            [each.label for each in payload.classes]
            for payload in run(engine_of(vision, name), items)
        ]
        right = [labels for _, labels in photos]
        pairs = list(zip(answers, right, strict=True))
        rows[name] = {
            1: {
                "first": sum(told[0] in labels for told, labels in pairs) / len(pairs),
                "five": sum(not labels.isdisjoint(told) for told, labels in pairs) / len(pairs),
            }
        }
        print(name, rows[name][1], [told[0] for told, _ in pairs], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--queries", type=int, default=250)
    parser.add_argument("--reranked", type=int, default=150, help="queries that are reranked too")
    parser.add_argument("--subject", default="accuracy", help="name of the results file")
    options = parser.parse_args()
    before = machine()
    texts = search_set(options.documents, options.queries)
    search, orders = searched(texts)
    reranking_rows = reranked(texts, orders, options.reranked)
    cases = [
        *table_cases(
            f"search: {options.queries} queries, {options.documents} documents",
            _RANKED,
            search,
            ours=EMBEDDERS,
        ),
        *table_cases(
            f"reranking: BM25's first {_CANDIDATES}, {options.reranked} queries",
            _RANKED,
            reranking_rows,
            ours=RERANKERS,
        ),
        *table_cases(f"photos: {len(PHOTOS)}, each in 4 forms", _SEEN, seen(), ours=CLASSIFIERS),
    ]
    path = write_results(
        options.subject,
        {
            "machine": before,
            "versions": versions("torch", "onnxruntime", "scikit-image", *LIBRARIES),
            "rounds": 1,
            "settings": {},
            "cases": cases,
            "notes": [
                f"documents are docstrings of the standard library, {', '.join(LIBRARIES)}",
                f"queries are the summaries of some of them; sha256 of all {texts.digest}",
                f"photos are scikit-image's, and few: one is {1 / len(PHOTOS):.2f} of a figure",
            ],
        },
    )
    print(path)


if __name__ == "__main__":
    main()
