"""Reranking beside sentence-transformers' CrossEncoder: the same weights, over HTTP.

No cross-encoder with weights can be had here, so one of MiniLM's shape is made with random
weights, which cost the same. Queries have about 10 words, documents about 100; a call has 32
of them, or 256.

    make bench SUBJECT=reranking
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from embedding import model_folder, peer_versions, texts
from environments import INFINITY
from formed import HERE, Contender, Run, Scenario, headpond
from harness import Server
from load import Target
from subject import Subject

VARIANTS = {"cross-fp32": "float32", "cross-bf16": "bfloat16"}
_FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")


def write_model(folder: Path) -> None:
    """Make a cross-encoder of MiniLM's shape, with random weights and MiniLM's tokenizer."""
    import torch  # noqa: PLC0415 - only where a model is made
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification  # noqa: PLC0415

    torch.manual_seed(0)
    config = BertConfig.from_pretrained(model_folder())
    config.num_labels = 1
    BertForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_folder()).save_pretrained(folder)


def write_bundle(model: Path, folder: Path, dtype: str) -> Path:
    """Write and lock a bundle of that model."""
    folder.mkdir()
    for file in _FILES:
        (folder / file).hardlink_to(model / file)
    artifacts = "\n".join(
        f"  - {{name: {name}, source: 'file:{file}'}}"
        for name, file in zip(
            ("weights", "config", "tokenizer", "tokenizer_config"), _FILES, strict=True
        )
    )
    (folder / "bundle.yaml").write_text(
        f"""\
name: {folder.name}
version: "1.0.0"
workload: reranking
summary: A cross-encoder of MiniLM's shape with random weights.
licence: Apache-2.0
artifacts:
{artifacts}
input: {{}}
execution:
  architecture: BertForSequenceClassification
  dtype: {dtype}
  options: {{}}
output: {{}}
limits: {{}}
fixtures:
  - name: pair
    given: {{query: a river, document: a stream}}
    expect: {{}}
    tolerance: 0.02
""",
        encoding="utf-8",
    )
    subprocess.run(
        [sys.executable, "-m", "headpond.cli", "bundle", "lock", str(folder)], check=True
    )
    return folder


def scenarios(size: int) -> list[Scenario]:
    queries = texts(size, 11, (8, 12))
    found = texts(size * 32, 12, (80, 120))
    calls = [(query, found[32 * at : 32 * at + 32]) for at, query in enumerate(queries)]
    alone = [(query, found[at : at + 1]) for at, query in enumerate(queries * 4)]
    return [
        Scenario(name="32 documents a call, 4 clients", items=calls, clients=4, each=32),
        Scenario(
            name="32 documents a call, one client", items=calls[: size // 2], clients=1, each=32
        ),
        Scenario(name="one document, one client", items=alone, clients=1),
        Scenario(
            name="one document beside calls of 256",
            items=alone,
            clients=1,
            beside=(queries[0], found[:256]),
        ),
    ]


def _target(port: int, path: str, model: str):  # type: ignore[no-untyped-def]
    def target(item: object) -> Target:
        query, documents = item  # type: ignore[misc]
        body = {"model": model, "query": query, "documents": documents, "return_documents": False}
        return Target(port=port, path=path, body=json.dumps(body).encode())

    return target


def scores(body: bytes) -> object:
    """Return the scores of an answer, in the order of the documents."""
    ranked = sorted(json.loads(body)["results"], key=lambda each: each["index"])
    return [each["relevance_score"] for each in ranked]


def contenders(folder: Path, only: Sequence[str], peers: Sequence[str]) -> list[Contender]:
    model = folder / "model"
    write_model(model)
    bundles = {
        name: write_bundle(model, folder / name, dtype)
        for name, dtype in VARIANTS.items()
        if name in only
    }
    server = headpond(8310, {name: {"bundle": str(each)} for name, each in bundles.items()}, folder)
    titles = {name: f"ServeReplica:app-{name}:" for name in bundles}
    found = [
        Contender(
            name=name,
            server=server,
            target=_target(8310, f"/models/{name}/v1/rerank", name),
            read=scores,
            ours=True,
            others=tuple(title for other, title in titles.items() if other != name),
            settings=f"headpond up; threads: 2, native {VARIANTS[name]}",
        )
        for name in bundles
    ]
    if "sentence" in peers:
        command = [
            *(INFINITY.python, str(HERE / "peers/sentence_embed.py"), "rerank"),
            *(str(model), "8312"),
        ]
        peer = Server(name="cross-encoder", command=command, port=8312, ready_path="/readyz")
        found.append(
            Contender(
                name="CrossEncoder fp32",
                server=peer,
                target=_target(8312, "/v1/rerank", "m"),
                read=scores,
                settings=" ".join(command[1:]),
            )
        )
    return found


def quality(run: Run, reference: str) -> Mapping[str, str]:
    """Return the largest difference of anybody's scores from the reference's."""
    worst: dict[str, float] = {}
    for answers in run.answers.values():
        for name, found in answers.items():
            for mine, theirs in zip(found, answers.get(reference, ()), strict=False):
                pairs = zip(mine, theirs, strict=True)  # type: ignore[call-overload]
                worst[name] = max([worst.get(name, 0.0), *(abs(a - b) for a, b in pairs)])
    return {name: f"scores differ by at most {value:.1e}" for name, value in worst.items()}


SUBJECT = Subject(
    name="reranking",
    about=__doc__,
    size=16,
    unit="calls",
    peers="sentence",
    variants=tuple(VARIANTS),
    contenders=contenders,
    scenarios=scenarios,
    quality=quality,
    reference="CrossEncoder fp32",
    libraries=("torch", "ray"),
    peer_versions=peer_versions,
    prepare=INFINITY.ensure,
)

if __name__ == "__main__":
    SUBJECT.main()
