"""The requests that the planner's predictions are measured by, and what they are in its terms."""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from headpond.bundle.document import read_manifest
from headpond.registry import workload

BUNDLES = Path(__file__).parent.parent / "bundles"
PROMPT_TOKENS, OUTPUT_TOKENS = 128, 64
STEPS, PASSES = 20, 2
FILL, FILL_TOKENS = 10, 300
"""Prompts that hold more than 64 MiB, and the tokens of each."""


def body(name: str, number: int, prompt_tokens: int) -> tuple[str, dict[str, Any]]:
    """Return the route and the body of one request of one item."""
    manifest = read_manifest(BUNDLES / name)
    route = workload(manifest.workload).routes[0]
    if manifest.workload == "generation":
        ids = random.Random(number).choices(range(1000, 40000), k=prompt_tokens)  # noqa: S311
        fields: dict[str, Any] = {"prompt": ids, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
        return "/v1/completions", {**fields, "temperature": 0, "model": name}
    fields = dict(route.example)
    if manifest.workload == "embedding":
        fields["input"] = fields["input"][:1]
    if manifest.workload == "reranking":
        fields |= {"documents": fields["documents"][:1], "top_n": 1}
    if manifest.workload == "diffusion":
        fields |= {"num_inference_steps": STEPS, "guidance_scale": 4}
    return route.path, {**fields, "model": name}


def ask(http: httpx2.Client, name: str, number: int, prompt_tokens: int = PROMPT_TOKENS) -> None:
    """Send one request and wait for its answer."""
    path, fields = body(name, number, prompt_tokens)
    answer = http.post(path, json=fields)
    if answer.status_code != httpx2.codes.OK:
        raise RuntimeError(f"{name}: {answer.status_code} {answer.text[:300]}")


def holds(name: str) -> bool:
    """Say whether there are requests here that fill a bundle's state."""
    return read_manifest(BUNDLES / name).workload == "generation"


def fill(http: httpx2.Client, name: str) -> None:
    """Send prompts at once until a model's state is full."""
    with ThreadPoolExecutor(FILL) as pool:
        list(pool.map(lambda number: ask(http, name, 100 + number, FILL_TOKENS), range(FILL)))


def load_of(name: str, work: Mapping[str, int]) -> str:
    """Return the dimensions of the requests that were sent, as `headpond plan` reads them.

    Args:
        name: The bundle's.
        work: What each of them was counted as, by unit.
    """
    kind = read_manifest(BUNDLES / name).workload
    return {
        "generation": f"prompt_tokens={PROMPT_TOKENS} output_tokens={OUTPUT_TOKENS}",
        "embedding": f"tokens={work.get('input_tokens', 0)}",
        "reranking": f"tokens={work.get('input_tokens', 0)}",
        "vision": "images=1",
        "speech": f"audio_ms={work.get('audio_ms', 0)}",
        "diffusion": f"forwards={STEPS} steps={STEPS} passes={PASSES} sources=0",
    }[kind]
