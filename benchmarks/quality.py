"""What a bundle's precision costs in quality, on the same text as the speed benchmark.

Every bundle's engine computes the same windows of CPython's language reference in this
process, and so does transformers in float32 and bfloat16. All distributions over the next
token are compared: perplexity of the text, the divergence from float32 and from our
bfloat16 (KL, nats a token), and how often the likeliest token is the same. Fixture drift:
how many of the tokens that the bfloat16 bundle's fixtures expect a bundle generates before
it parts from them.

    make bench SUBJECT=quality
"""

from __future__ import annotations

import argparse
import gc
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

import contenders
from contenders import HERE, Variant
from harness import machine, versions, write_results
from headpond.bundle.loading import start_engine
from headpond.bundle.manifest import Manifest
from headpond.bundle.store import open_bundle
from headpond.engine import EngineSettings
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.record import record
from prompts import Prompts
from tables import Field, Measure, table_cases
from weights import BUNDLE, Weights, prepare

EXACT, REFERENCE = "transformers float32", "bf16"
BLOCK_TOKENS = 16
_ROWS_AT_ONCE = 64

MEASURES = (
    Measure(key="perplexity", unit="perplexity"),
    Measure(key="kl_exact", unit="KL from float32"),
    Measure(key="top_exact", unit="top-1 as in float32"),
    Measure(key="kl_reference", unit="KL from our bf16"),
    Measure(key="top_reference", unit="top-1 as in our bf16"),
    Measure(key="drift", unit="fixture tokens kept"),
)

Logits = Callable[[list[int]], Tensor]
"""Computes a window: token IDs to float32 logits of shape [tokens, vocabulary]."""


@dataclass(kw_only=True)
class Comparison:
    """Sums over all scored positions of one contender."""

    tokens: int = 0
    loss: float = 0.0
    divergence: float = 0.0
    agreed: int = 0

    def add(self, found: Tensor, expected: Tensor, ids: list[int]) -> None:
        """Add one window; both of shape [tokens, vocabulary], log-probabilities."""
        targets = torch.tensor(ids[1:])
        self.tokens += len(targets)
        self.loss -= float(found[:-1].gather(1, targets[:, None]).double().sum())
        for at in range(0, len(targets), _ROWS_AT_ONCE):
            end = min(at + _ROWS_AT_ONCE, len(targets))
            ours, theirs = found[at:end], expected[at:end]
            self.divergence += float((theirs.exp() * (theirs - ours)).double().sum())
            self.agreed += int((ours.argmax(1) == theirs.argmax(1)).sum())


def plain(weights: Weights, dtype: torch.dtype) -> Logits:
    """Return transformers' forward."""
    model = AutoModelForCausalLM.from_pretrained(weights.folder, dtype=dtype)

    def logits(ids: list[int]) -> Tensor:
        found: Tensor = model(input_ids=torch.tensor([ids])).logits[0].float()
        return found

    return logits


def engine_of(variant: Variant, threads: int) -> tuple[GenerationEngine, Manifest]:
    """Load a bundle's engine, its fixtures unchecked: they are what is measured."""
    bundle = open_bundle(HERE.parent / variant.bundle)
    settings = EngineSettings(state_bytes=256 * 2**20, max_slots=1, device="cpu", threads=threads)
    engine = start_engine(record, bundle, settings)
    if not isinstance(engine, GenerationEngine):
        raise TypeError(f"{variant.bundle} has another engine")
    return engine, bundle.manifest


def computed(engine: GenerationEngine) -> Logits:
    """Return the engine's own forward over a cache that nobody else uses."""

    def logits(ids: list[int]) -> Tensor:
        blocks = range(math.ceil(len(ids) / BLOCK_TOKENS))
        span = Span(token_ids=ids, start=0, blocks=blocks, logits=len(ids))
        return torch.from_numpy(engine._runner.forward([span]).values())  # noqa: SLF001 - the seam below sampling

    return logits


def fixture_drift(engine: GenerationEngine, manifest: Manifest) -> tuple[float, str]:
    """Return the part of the expected tokens that come before the first difference."""
    kept, expected = 0, 0
    said = []
    for fixture in manifest.fixtures:
        wanted = fixture.expect["output_ids"]
        got = engine.observe(fixture.given)["output_ids"]
        if not isinstance(wanted, list) or not isinstance(got, list):
            raise TypeError(f"fixture {fixture.name} expects no tokens")
        pairs = enumerate(zip(wanted, got, strict=False))
        at = next((index for index, (a, b) in pairs if a != b), min(len(wanted), len(got)))
        kept, expected = kept + at, expected + len(wanted)
        if at < len(wanted):
            said.append(f"{fixture.name} at token {at}")
    return kept / expected, ", ".join(said) or "none"


@torch.inference_mode()
def log_probabilities(logits: Logits, windows: list[list[int]]) -> Iterator[Tensor]:
    """Yield each window's distributions over the next token."""
    for ids in windows:
        yield logits(ids).log_softmax(1)


@torch.inference_mode()
def score(
    found: Iterator[Tensor],
    windows: list[list[int]],
    references: Mapping[str, list[Tensor]],
) -> tuple[dict[str, float], list[Tensor]]:
    """Compare one contender with every reference there is; return its own distributions too."""
    kept: list[Tensor] = []
    sums = {name: Comparison() for name in references} | {"": Comparison()}
    for at, own in enumerate(found):
        kept.append(own)
        for name, each in sums.items():
            each.add(own, references[name][at] if name else own, windows[at])
    itself = sums[""]
    row = {"perplexity": math.exp(itself.loss / itself.tokens)}
    for key, name in (("exact", EXACT), ("reference", REFERENCE)):
        against = sums.get(name, itself)
        row[f"kl_{key}"] = against.divergence / against.tokens
        row[f"top_{key}"] = against.agreed / against.tokens
    return row, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=512, help="of a window")
    parser.add_argument("--only", default="", help="our variants, by comma; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--subject", default="quality", help="name of the results file")
    options = parser.parse_args()
    before, weights = machine(), prepare()
    torch.set_num_threads(options.threads)
    prompts = Prompts(weights.tokenizer)
    ids = prompts.ids(options.windows * options.tokens)
    windows = [ids[at : at + options.tokens] for at in range(0, len(ids), options.tokens)]
    rows: Field = {}
    references: dict[str, list[Tensor]] = {}
    notes = [f"{len(ids)} tokens of CPython's language reference, sha256 {prompts.digest}"]

    def compare(name: str, found: Iterator[Tensor], drift: float | None = None) -> None:
        row, kept = score(found, windows, references)
        if name in {EXACT, REFERENCE}:
            references[name] = kept
        rows[name] = {1: row if drift is None else {**row, "drift": drift}}
        print(
            f"{name:22}", {key: round(value, 5) for key, value in rows[name][1].items()}, flush=True
        )

    compare(EXACT, log_probabilities(plain(weights, torch.float32), windows))
    wanted = [name for name in options.only.split(",") if name]
    variants = contenders.present(
        each for each in contenders.VARIANTS if not wanted or each.name in wanted
    )
    expected = open_bundle(BUNDLE).manifest
    for variant in variants:
        engine, _ = engine_of(variant, options.threads)
        kept, parted = fixture_drift(engine, expected)
        compare(variant.name, log_probabilities(computed(engine), windows), kept)
        notes.append(f"{variant.name}: fixtures that part from bf16's: {parted}")
        del engine
        gc.collect()
    compare("transformers bfloat16", log_probabilities(plain(weights, torch.bfloat16), windows))
    compare(EXACT, iter(references[EXACT]))  # now that our bf16 is there to compare with
    path = write_results(
        options.subject,
        {
            "machine": before,
            "versions": versions("torch", "transformers"),
            "rounds": 1,
            "settings": {each.name: each.bundle for each in variants},
            "cases": list(
                table_cases(
                    f"{len(windows)} windows of {options.tokens} tokens",
                    MEASURES,
                    rows,
                    ours=[each.name for each in variants],
                )
            ),
            "notes": notes,
        },
    )
    print(path)


if __name__ == "__main__":
    main()
