"""Two ranks on the CPU compute what one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from headpond.engine import Json
from headpond.errors import BundleError
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling
from workloads.generation.parallel_engines import SETTINGS, parallel_engine, with_options

if TYPE_CHECKING:
    from workloads.generation.conftest import Drive, Tiny

pytestmark = pytest.mark.timeout(300)

PROMPTS = [
    tuple((at * 7 + which * 31) % 390 for at in range(length))
    for which, length in enumerate([1, 5, 16, 17, 33, 2, 48, 11])
]


def item(token_ids: tuple[int, ...], sampling: Sampling) -> GenerationItem:
    prompt = Prompt(token_ids=token_ids)
    return GenerationItem(prompt=prompt, max_output_tokens=20, sampling=sampling)


GREEDY = [item(each, Sampling(temperature=0.0)) for each in PROMPTS]


@pytest.fixture(scope="module")
def parallel(tiny: Tiny) -> Iterator[GenerationEngine]:
    with parallel_engine(tiny.bundle) as engine:
        yield engine


@pytest.mark.parametrize(
    ("chunk", "stagger", "preempt_every"), [(512, 0, 0), (7, 1, 0), (16, 1, 5)]
)
def test_greedy_tokens_are_those_of_transformers(
    parallel: GenerationEngine,
    tiny: Tiny,
    drive: Drive,
    chunk: int,
    stagger: int,
    preempt_every: int,
) -> None:
    free = parallel.free_blocks
    runs = drive(parallel, GREEDY, chunk=chunk, stagger=stagger, preempt_every=preempt_every)
    assert [run.output_ids for run in runs] == [tiny.greedy(each, 20) for each in PROMPTS]
    assert parallel.free_blocks == free


def test_a_prefix_that_is_found_again_gives_the_same_tokens(
    parallel: GenerationEngine, tiny: Tiny, drive: Drive
) -> None:
    before = parallel.tallies()["prefix_cache_hits"]
    for _ in range(2):
        (run,) = drive(parallel, [GREEDY[6]])
        assert run.output_ids == tiny.greedy(PROMPTS[6], 20)
    assert parallel.tallies()["prefix_cache_hits"] - before >= 32


def test_samples_are_those_of_one_rank(
    parallel: GenerationEngine, tiny: Tiny, drive: Drive
) -> None:
    items = [item(each, Sampling(seed=at, temperature=0.9)) for at, each in enumerate(PROMPTS)]
    alone = drive(tiny.engine(kernels="torch"), items)
    assert [run.output_ids for run in drive(parallel, items)] == [run.output_ids for run in alone]


def test_the_model_and_its_memory_are_those_of_one_rank(
    parallel: GenerationEngine, tiny: Tiny
) -> None:
    alone = load(with_options(tiny.bundle, kernels="torch"), replace(SETTINGS, tensor_parallel=1))
    assert parallel.symbols == alone.symbols
    assert parallel.free_blocks == alone.free_blocks


REFUSED: dict[str, dict[str, Json]] = {
    "quantization": {"quantization": "int8"},
    "adapters": {"adapters": {"french": "french"}},
    "kernels: native": {"kernels": "native"},
    "cuda_graphs": {"cuda_graphs": True},
}


@pytest.mark.parametrize("named", REFUSED)
def test_what_only_one_process_can_do_is_refused(tiny: Tiny, named: str) -> None:
    with pytest.raises(BundleError, match=f"{named}.*tensor_parallel"):
        load(with_options(tiny.bundle, **REFUSED[named]), SETTINGS)


def test_heads_that_cannot_be_dealt_out_are_refused(tiny: Tiny) -> None:
    with pytest.raises(BundleError, match="divide the model's 2 KV heads") as refusal:
        load(tiny.bundle, replace(SETTINGS, tensor_parallel=3))
    assert refusal.value.param == "tensor_parallel"


def test_more_gpus_than_there_are_are_refused(tiny: Tiny) -> None:
    with pytest.raises(BundleError, match="as many GPUs"):
        load(tiny.bundle, replace(SETTINGS, device="cuda", tensor_parallel=2))
