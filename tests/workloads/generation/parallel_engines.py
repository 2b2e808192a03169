"""Engines of several ranks, of which a process can have one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headpond.engine import EngineSettings, Json
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.load import load

if TYPE_CHECKING:
    from headpond.bundle.store import Bundle

SETTINGS = EngineSettings(state_bytes=2**19, tensor_parallel=2)


def with_options(bundle: Bundle, **options: Json) -> Bundle:
    execution = bundle.manifest.execution.model_copy(update={"options": options})
    return replace(bundle, manifest=bundle.manifest.model_copy(update={"execution": execution}))


@contextmanager
def parallel_engine(bundle: Bundle, **options: Json) -> Iterator[GenerationEngine]:
    """Load a bundle for two ranks; the second, and their group, end with the block."""
    engine = load(with_options(bundle, **options), SETTINGS)
    try:
        yield engine
    finally:
        engine.close()
