"""An engine that computes with vLLM: what it is asked for, and what is made of its answers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from headpond.engine import EngineSettings, Json, Quantum
from headpond.errors import (
    BundleError,
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    UnsupportedParameter,
)
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.items import (
    ChosenToken,
    Constraint,
    GenerationItem,
    Prompt,
    Sampling,
    TokenRules,
    Tool,
)
from workloads.generation.conftest import CONTEXT, Drive, Run, drive_items
from workloads.generation.fake_vllm.vllm import IS_NAN, IS_REFUSED
from workloads.generation.parallel_engines import with_options
from workloads.generation.vllm_engines import Asked, fake_python, vllm_engine, written

if TYPE_CHECKING:
    from headpond.bundle.store import Bundle
    from workloads.generation.conftest import Tiny

GREEDY = Sampling(temperature=0.0)
PROMPT = tuple(range(20, 60))


def item(token_ids: tuple[int, ...] = PROMPT, count: int = 20, **fields: object) -> GenerationItem:
    given = {
        "prompt": Prompt(token_ids=token_ids),
        "sampling": GREEDY,
        "max_output_tokens": count,
    }
    return GenerationItem(**(given | fields))  # type: ignore[arg-type]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    log = tmp_path / "asked"
    log.touch()
    monkeypatch.setenv("FAKE_VLLM_LOG", str(log))
    return Asked(log)


@pytest.fixture
def engine(tiny: Tiny, tmp_path: Path, asked: Asked) -> Iterator[GenerationEngine]:
    with vllm_engine(tiny.bundle, fake_python(tmp_path)) as engine:
        yield engine


@pytest.fixture(scope="module")
def long_lived(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GenerationEngine]:
    bundle = with_output(tiny, tool_syntax="hermes")
    with vllm_engine(bundle, fake_python(tmp_path_factory.mktemp("vllm"))) as engine:
        yield engine


def with_output(tiny: Tiny, **output: Json) -> Bundle:
    manifest = tiny.bundle.manifest.model_copy(update={"output": output})
    return replace(tiny.bundle, manifest=manifest)


def only(runs: list[Run]) -> Run:
    (run,) = runs
    return run


def usage_of(run: Run) -> tuple[int, int, int]:
    usage = run.deltas[-1].usage
    assert usage is not None
    return usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens


def test_it_gets_the_model_and_the_memory_that_the_deployment_gives(
    engine: GenerationEngine, asked: Asked
) -> None:
    (line,) = asked.lines("start")
    start = line["start"]
    assert isinstance(start, dict)
    # One block more than the ledger counts: vLLM keeps one empty.
    assert (start["num_gpu_blocks_override"], start["block_size"]) == (65, 16)
    assert start["kv_cache_memory_bytes"] == 65 * 16 * 2 * 2 * 2 * 8 * 4
    assert (start["max_num_seqs"], start["max_model_len"]) == (8, CONTEXT)
    assert (start["tensor_parallel_size"], start["dtype"]) == (1, "float32")
    assert engine.free_blocks == 64


def test_sequences_that_come_and_lose_their_blocks_are_whole(
    engine: GenerationEngine, drive: Drive
) -> None:
    prompts = [tuple(range(at, at + 12 * at)) for at in range(1, 9)]
    items = [item(prompt, 33) for prompt in prompts]
    runs = drive(engine, items, chunk=16, stagger=2, preempt_every=5)
    assert [run.output_ids for run in runs] == [written(prompt, 33) for prompt in prompts]
    assert [usage_of(run) for run in runs] == [(len(prompt), 33, 0) for prompt in prompts]
    assert {run.deltas[-1].finish_reason for run in runs} == {"length"}
    assert engine.free_blocks == 64


@pytest.mark.parametrize("seed", range(6))
def test_whoever_is_stepped_whenever_gets_their_own_tokens_within_what_is_reserved(
    long_lived: GenerationEngine, seed: int
) -> None:
    engine, running, random = long_lived, list[Run](), Random(seed)  # noqa: S311
    for at in range(300):
        action = random.choice(["start", "step", "step", "step", "steps", "preempt", "cancel"])
        if action == "start" and len(running) < 8:
            first, length = random.randrange(100), random.randrange(1, 100)
            plan = engine.plan(item(tuple(range(first, first + length)), 40), f"tenant-{at % 3}")
            running.append(Run(engine.start(plan), []))
        elif action.startswith("step"):
            chosen = [run for run in running if random.random() < 0.6]
            for _ in range(20 if action == "steps" else 1):
                _step(engine, [run for run in chosen if run.last is None])
        elif running and action == "preempt" and (run := random.choice(running)).held:
            assert engine.preempt(run.slot) == run.held
            run.lost, run.held, run.granted = run.held, 0, 0
        elif running and action == "cancel" and random.random() < 0.3:
            engine.release(running.pop(random.randrange(len(running))).slot)
        for run in running:
            assert run.output_ids == written(run.slot.prepared.token_ids, 40)[: len(run.output_ids)]
        for run in [run for run in running if run.last is not None]:
            assert len(run.output_ids) == 40
            engine.release(run.slot)
            running.remove(run)
    for run in running:
        engine.release(run.slot)
    assert engine.free_blocks == 64


def _step(engine: GenerationEngine, runs: list[Run]) -> None:
    for run in runs:
        run.grant(run.held + 1 if run.held else run.slot.missing + 16)
    quanta = [Quantum(slot=run.slot, units=1) for run in runs]
    for run, progress in zip(runs, engine.step(quanta) if runs else (), strict=True):
        assert progress.error is None
        skipped = progress.skipped or 0
        assert run.lost <= skipped <= progress.units
        run.lost = 0
        run.held += progress.units
        assert run.held <= run.granted
        run.deltas += progress.outputs
        run.last = progress if progress.finished is not None else None


def test_sampling_is_asked_for_one_to_one(
    tiny: Tiny, tmp_path: Path, asked: Asked, drive: Drive
) -> None:
    sampling = Sampling(
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        presence_penalty=0.5,
        frequency_penalty=-0.25,
        repetition_penalty=1.2,
        logit_bias={7: -3.5},
        seed=-5,
    )
    rules = TokenRules(min_tokens=3, bad_words=("fox",))
    ends = {"stop_ids": (399,), "ignore_eos": True}
    with vllm_engine(
        with_output(tiny, stop_tokens=["<|im_end|>"]), fake_python(tmp_path)
    ) as engine:
        drive(engine, [item(PROMPT, 4, sampling=sampling, rules=rules, logprobs=2, **ends)])
        drive(engine, [item(count=1, rules=TokenRules(allowed_ids=(5, 6)))])
    first, second = (line["params"] for line in asked.lines("add"))
    eos = tiny.tokenizer.convert_tokens_to_ids("<|im_end|>")
    words = [tiny.tokenizer.encode(text, add_special_tokens=False) for text in ("fox", " fox")]
    assert first == {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.25,
        "repetition_penalty": 1.2,
        "logit_bias": {"7": -3.5},
        "seed": 2**64 - 5,
        "max_tokens": 4,
        "min_tokens": 3,
        "stop_token_ids": [399],
        "all_stop_token_ids": [eos, 399],
        "allowed_token_ids": None,
        "bad_words": sorted(words),
        "logprobs": 2,
        "prompt_logprobs": None,
        "ignore_eos": True,
        "detokenize": False,
    }
    assert isinstance(second, dict)
    expected = {
        "temperature": 0.0,
        "seed": None,
        "logit_bias": None,
        "allowed_token_ids": [5, 6],
        "stop_token_ids": [eos],
    }
    assert {name: second[name] for name in expected} == expected


def test_a_prefix_is_found_again_by_the_same_tenant_alone(
    engine: GenerationEngine, asked: Asked
) -> None:
    cached = []
    for tenant, salt in (("a", ""), ("a", ""), ("b", ""), ("a", "x")):
        slot = engine.start(engine.plan(item(count=1, cache_salt=salt), tenant))
        steps = [engine.step([Quantum(slot=slot, units=40)])[0]]
        while steps[-1].finished is None:
            steps += engine.step([Quantum(slot=slot, units=1)])
        engine.release(slot)
        units, found = sum(each.units for each in steps), sum(each.skipped or 0 for each in steps)
        cached.append((units, found))
    assert cached == [(40, 0), (40, 32), (40, 0), (40, 0)]
    salts = [line["salt"] for line in asked.lines("add")]
    assert len(set(map(str, salts))) == 3
    assert engine.plan(item(), "a").shape["cached_tokens"] == 32
    tallies = engine.tallies()
    assert (tallies["prefix_cache_queries"], tallies["prefix_cache_hits"]) == (160, 32)


def test_log_probabilities_are_those_of_vllm(engine: GenerationEngine, drive: Drive) -> None:
    run = only(drive(engine, [item(count=2, logprobs=2)]))
    for token_id, entry in zip(written(PROMPT, 2), _entries(run), strict=True):
        assert (entry.chosen.token_id, entry.chosen.logprob) == (token_id, math.log(0.25))
        likeliest = [(each.token_id, each.logprob) for each in entry.top]
        assert likeliest == [(token_id + 1, math.log(0.5)), (token_id, math.log(0.25))]
    for count, top in ((0, []), (1, [written(PROMPT, 1)[0] + 1])):
        (entry,) = _entries(only(drive(engine, [item(count=1, logprobs=count)])))
        assert [each.token_id for each in entry.top] == top


@pytest.mark.parametrize("count", [0, 3])
def test_a_prompt_is_given_back_with_how_likely_it_was(
    engine: GenerationEngine, drive: Drive, count: int
) -> None:
    asked = item(tuple(range(20, 140)), count=count, echo=True, prompt_logprobs=1)
    run = only(drive(engine, [asked], chunk=16))
    prompt = [delta for delta in run.deltas if delta.is_prompt]
    entries = [entry for delta in prompt for entry in delta.logprobs]
    assert [token_id for delta in prompt for token_id in delta.token_ids] == list(range(20, 140))
    assert [entry.chosen.token_id for entry in entries] == list(range(20, 140))
    assert entries[0].chosen.logprob is None
    assert {entry.chosen.logprob for entry in entries[1:]} == {math.log(0.25)}
    assert [entry.top[0].token_id for entry in entries[1:]] == list(range(22, 141))
    generated = [delta for delta in run.deltas if not delta.is_prompt]
    assert [each for delta in generated for each in delta.token_ids] == (
        written(range(20, 140), count) if count else []
    )


def _entries(run: Run) -> list[ChosenToken]:
    return [entry for delta in run.deltas for entry in delta.logprobs]


def test_stop_strings_are_ours_and_what_goes_on_is_aborted(
    engine: GenerationEngine, asked: Asked, tiny: Tiny
) -> None:
    text = str(tiny.tokenizer.decode(written(PROMPT, 30)))
    stop = text[4:7]
    slot = engine.start(engine.plan(item(count=100, stop=(stop,)), "a"))
    shown, progress = "", None
    while progress is None or progress.finished is None:
        (progress,) = engine.step([Quantum(slot=slot, units=40)])
        shown += "".join(delta.text for delta in progress.outputs)
    assert shown == text[: text.index(stop)]
    assert progress.outputs[-1].finish_reason == "stop"
    engine.release(slot)
    other = engine.start(engine.plan(item(count=1), "a"))
    engine.step([Quantum(slot=other, units=40)])
    engine.release(other)
    assert [line["abort"] for line in asked.lines("abort")] == [0]


def test_a_token_that_ends_it_ends_it(engine: GenerationEngine, drive: Drive) -> None:
    end = written(PROMPT, 5)[-1]
    run = only(drive(engine, [item(stop_ids=(end,))]))
    assert run.output_ids == written(PROMPT, 5)
    assert run.deltas[-1].finish_reason == "stop"


CALLS = Prompt(token_ids=PROMPT, tools=(Tool(name="f"),))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"constraint": Constraint(kind="json_object")}, "response_format"),
        (
            {"constraint": Constraint(kind="regex", source="a", param="guided_regex")},
            "guided_regex",
        ),
        ({"prompt": CALLS, "tool_choice": "required"}, "tool_choice"),
        ({"prompt": Prompt(token_ids=PROMPT, tools=(Tool(name="f", strict=True),))}, "tools"),
        ({"sampling": Sampling(temperature=0.005)}, "temperature"),
        ({"rules": TokenRules(allowed_ids=(5,), bad_words=("a",))}, "bad_words"),
    ],
)
def test_what_vllm_does_in_another_way_is_refused_by_name(
    long_lived: GenerationEngine, fields: dict[str, object], param: str
) -> None:
    with pytest.raises(UnsupportedParameter, match="served by vLLM") as refused:
        long_lived.plan(item(**fields), "a")  # type: ignore[arg-type]
    assert refused.value.param == param


def test_what_can_give_no_token_is_refused(long_lived: GenerationEngine) -> None:
    rules = TokenRules(min_tokens=2, allowed_ids=(9,))
    with pytest.raises(InvalidRequest, match="no token") as refused:
        long_lived.plan(item(rules=rules, stop_ids=(9,)), "a")
    assert refused.value.param == "allowed_token_ids"
    full = tuple(range(CONTEXT))
    with pytest.raises(ContextLengthExceeded, match="room for one more"):
        long_lived.plan(item(full, count=0, echo=True), "a")


def test_who_fails_fails_alone(engine: GenerationEngine, drive: Drive) -> None:
    prompts = [(1, 2, 3), (1, 2, IS_NAN), (1, 2, IS_REFUSED)]
    whole, broken, refused = drive(engine, [item(prompt, 9) for prompt in prompts])
    assert whole.output_ids == written((1, 2, 3), 9)
    for run, match in ((broken, "not finite"), (refused, "did not take")):
        assert run.last is not None
        assert isinstance(run.last.error, EngineFailed)
        assert match in str(run.last.error)
    assert engine.free_blocks == 64


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"kernels": "native"}, "execution.options.kernels"),
        ({"quantization": "int8"}, "execution.options.quantization"),
        ({"adapters": {"a": "b"}}, "execution.options.adapters"),
        ({"python": "/nowhere/python"}, "execution.options.python"),
        ({"engine": "headpond", "python": "/bin/python"}, "execution.options"),
        ({"python": "/bin/false"}, "execution.options.engine"),
    ],
)
def test_a_bundle_that_asks_for_what_there_is_not_is_refused(
    tiny: Tiny, options: dict[str, Json], param: str
) -> None:
    bundle = with_options(tiny.bundle, **({"engine": "vllm"} | options))
    with pytest.raises(BundleError) as refused:
        load(bundle, EngineSettings(state_bytes=2**20))
    assert refused.value.param == param


def test_the_interpreter_may_be_named_by_the_machine(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_VLLM_PYTHON", fake_python(tmp_path))
    engine = load(
        with_options(tiny.bundle, engine="vllm"), EngineSettings(state_bytes=2**20, max_slots=4)
    )
    try:
        (run,) = drive_items(engine, [item(count=3)])
        assert engine.observe({"token_ids": [1, 2], "max_tokens": 2})["output_ids"] == written(
            (1, 2), 2
        )
    finally:
        engine.close()
    assert run.output_ids == written(PROMPT, 3)
    assert engine.lost
