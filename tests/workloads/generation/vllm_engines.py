"""Engines that compute with vLLM: the child as it is, over a vLLM that is made up."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headpond.engine import EngineSettings, Json
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.load import load
from workloads.generation.fake_vllm.vllm import follower
from workloads.generation.parallel_engines import with_options

if TYPE_CHECKING:
    from headpond.bundle.store import Bundle

BLOCK_BYTES = 16 * 2 * 2 * 2 * 8 * 4
"""Of the tiny model: tokens, layers, keys and values, heads, their width, and a float's bytes."""

_RUN = (
    "import runpy, sys; sys.path.insert(0, {folder!r}); sys.argv = sys.argv[2:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def fake_python(folder: Path) -> str:
    """Write an interpreter in which there is the made-up vLLM."""
    path = folder / "python"
    code = _RUN.format(folder=str(Path(__file__).with_name("fake_vllm")))
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@contextmanager
def vllm_engine(
    bundle: Bundle, python: str, *, blocks: int = 64, **options: Json
) -> Iterator[GenerationEngine]:
    """Load a bundle for vLLM; its process ends with the block."""
    settings = EngineSettings(state_bytes=blocks * BLOCK_BYTES, max_slots=8)
    manifest = bundle.manifest.model_copy(update={"model": {"block_tokens": 16}})
    bundle = with_options(
        replace(bundle, manifest=manifest), engine="vllm", python=python, **options
    )
    engine = load(bundle, settings)
    try:
        yield engine
    finally:
        engine.close()


def written(prompt: Sequence[int], count: int) -> list[int]:
    """What the made-up vLLM writes."""
    token_ids = [0, *prompt]
    for _ in range(count):
        token_ids.append(follower(*token_ids[-2:]))
    return token_ids[-count:]


@dataclass(frozen=True)
class Asked:
    """What the made-up vLLM was asked for."""

    path: Path

    def lines(self, kind: str) -> list[dict[str, Json]]:
        lines = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if kind in line]
