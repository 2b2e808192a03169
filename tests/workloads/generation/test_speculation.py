from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from headpond.engine import EngineSettings, Quantum
from headpond.errors import BundleError
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling
from workloads.generation.conftest import bundle_of, llama_config, save_tiny

if TYPE_CHECKING:
    from workloads.generation.conftest import Drive, Run, Tiny

GREEDY = Sampling(temperature=0.0)
LOOKUP = {"method": "prompt_lookup", "max_rows": 64}
# The last tokens repeat what comes at the beginning, so that there is something to look up.
PROMPTS = [
    tuple((at * 7 + which * 31) % 390 for at in list(range(length)) + list(range(length // 2)))
    for which, length in enumerate([1, 5, 16, 17, 33, 2, 48, 11])
]
SAMPLED = [
    Sampling(seed=11, temperature=0.8, top_p=0.9),
    Sampling(seed=5, temperature=0.5, min_p=0.05),
    Sampling(seed=7, presence_penalty=1.0, frequency_penalty=0.5),
    Sampling(seed=2**62, temperature=0.3, top_k=30),
]


def item(
    token_ids: tuple[int, ...], count: int = 50, sampling: Sampling = GREEDY, **more: object
) -> GenerationItem:
    prompt = Prompt(token_ids=token_ids)
    return GenerationItem(prompt=prompt, max_output_tokens=count, sampling=sampling, **more)  # type: ignore[arg-type]


def save(tiny: Tiny) -> str:
    """Write the bundle's manifest into its folder and return where that is."""
    manifest = tiny.bundle.manifest.model_dump(mode="json")
    (tiny.bundle.root / "bundle.yaml").write_text(json.dumps(manifest))
    return str(tiny.bundle.root)


def drafts_of(tiny: Tiny, **more: object) -> dict[str, object]:
    return {"method": "draft", "bundle": save(tiny), "max_rows": 64, **more}


@pytest.fixture(scope="module")
def near(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Nearly the same model: its drafts are mostly right, but not always."""
    model = copy.deepcopy(tiny.reference)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.03 * weight.std() * torch.randn(weight.shape, generator=generator))
    folder = tmp_path_factory.mktemp("near")
    model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return replace(tiny, bundle=bundle_of(folder, "LlamaForCausalLM"), reference=model)


@pytest.fixture(params=["prompt_lookup", "draft"])
def speculation(request: pytest.FixtureRequest, near: Tiny) -> dict[str, object]:
    return dict(LOOKUP) if request.param == "prompt_lookup" else drafts_of(near)


def lengths(run: Run) -> list[int]:
    return [len(delta.token_ids) for delta in run.deltas]


@pytest.mark.parametrize(("chunk", "stagger"), [(512, 0), (16, 1), (5, 2)])
@pytest.mark.parametrize("method", ["prompt_lookup", "draft"])
def test_greedy_tokens_are_those_of_transformers(
    any_tiny: Tiny, drive: Drive, method: str, chunk: int, stagger: int
) -> None:
    options = LOOKUP if method == "prompt_lookup" else drafts_of(any_tiny)
    engine = any_tiny.engine(speculation=options)  # type: ignore[arg-type]
    runs = drive(engine, [item(each) for each in PROMPTS], chunk=chunk, stagger=stagger)
    assert [run.output_ids for run in runs] == [any_tiny.greedy(each, 50) for each in PROMPTS]
    assert engine.tallies()["draft_tokens"] > 0
    if method == "draft":
        assert engine.tallies()["accepted_draft_tokens"] > 100
    assert engine.free_blocks == 64


@pytest.mark.parametrize("preempt_every", [0, 5])
def test_samples_are_those_drawn_without_drafts(
    tiny: Tiny, drive: Drive, speculation: dict[str, object], preempt_every: int
) -> None:
    items = [item(each, sampling=SAMPLED[at % 4], logprobs=1) for at, each in enumerate(PROMPTS)]
    plain = drive(tiny.engine(), items)
    engine = tiny.engine(speculation=speculation)  # type: ignore[arg-type]
    runs = drive(engine, items, stagger=1, preempt_every=preempt_every)
    assert [run.output_ids for run in runs] == [run.output_ids for run in plain]
    assert [run.text for run in runs] == [run.text for run in plain]
    assert 0 < engine.tallies()["accepted_draft_tokens"] < engine.tallies()["draft_tokens"]
    for run, like in zip(runs, plain, strict=True):
        entries = [entry.chosen for delta in run.deltas for entry in delta.logprobs]
        wanted = [entry.chosen for delta in like.deltas for entry in delta.logprobs]
        assert [each.token_id for each in entries] == run.output_ids
        assert [each.logprob for each in entries] == pytest.approx(
            [each.logprob for each in wanted], abs=1e-4
        )


def test_the_distribution_is_that_of_the_model(tiny: Tiny, near: Tiny, drive: Drive) -> None:
    """Frequencies of the second and third token over seeds, against those of other seeds."""
    count = 640
    prompt = (7, 8, 9, 7, 8, 9, 7, 8)
    sampling = [Sampling(seed=seed, temperature=0.7, top_k=4) for seed in range(2 * count)]
    items = [item(prompt, 3, each) for each in sampling]
    engine = tiny.engine(speculation=drafts_of(near))  # type: ignore[arg-type]
    groups = [items[at : at + 8] for at in range(0, count, 8)]
    runs = [run for group in groups for run in drive(engine, group)]
    others = drive(tiny.engine(blocks=2048), items[count:])
    assert engine.tallies()["accepted_draft_tokens"] > count / 2
    assert engine.tallies()["accepted_draft_tokens"] < engine.tallies()["draft_tokens"]
    for position in (1, 2):
        seen = Counter(run.output_ids[position] for run in runs)
        wanted = Counter(run.output_ids[position] for run in others)
        assert len(wanted) > 3
        distance = sum(abs(seen[each] - wanted[each]) for each in seen | wanted) / (2 * count)
        assert distance < 0.1


def test_a_draft_of_the_model_itself_is_always_right(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine(speculation=drafts_of(tiny, tokens=3))  # type: ignore[arg-type]
    (run,) = drive(engine, [item(PROMPTS[4], 60)])
    assert run.output_ids == tiny.greedy(PROMPTS[4], 60)
    # Four tokens a step, but fewer where the block ends, and one from the prompt.
    assert Counter(lengths(run))[4] >= 10
    tallies = engine.tallies()
    assert tallies["accepted_draft_tokens"] == tallies["draft_tokens"] == 60 - len(run.deltas)


def test_a_sampled_draft_of_the_model_itself_is_always_right(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine(speculation=drafts_of(tiny))  # type: ignore[arg-type]
    drive(engine, [item(PROMPTS[4], 60, Sampling(seed=1, temperature=1.3, top_p=0.9))])
    tallies = engine.tallies()
    assert tallies["accepted_draft_tokens"] == tallies["draft_tokens"] > 30


def test_the_draft_model_reads_a_shared_prefix_once(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine(speculation=drafts_of(tiny))  # type: ignore[arg-type]
    long = tuple((at * 13) % 390 for at in range(100))
    for end in range(3):
        (run,) = drive(engine, [item((*long, end), 20)])
        assert run.output_ids == tiny.greedy((*long, end), 20)
    tallies = engine.tallies()
    assert tallies["accepted_draft_tokens"] == tallies["draft_tokens"]
    assert tallies["prefix_cache_hits"] == 2 * 96


def test_a_stop_string_within_accepted_drafts_ends_the_text_before_it(
    tiny: Tiny, drive: Drive, speculation: dict[str, object]
) -> None:
    plain = tiny.engine()
    engine = tiny.engine(speculation=speculation)  # type: ignore[arg-type]
    (free,) = drive(plain, [item(PROMPTS[4], 60)])
    for start in range(5, len(free.text) - 3, 7):
        stopping = item(PROMPTS[4], 60, stop=(free.text[start : start + 3],))
        ((run,), (like,)) = drive(engine, [stopping]), drive(plain, [stopping])
        assert (run.text, run.output_ids) == (like.text, like.output_ids)
        assert run.deltas[-1].finish_reason == "stop"
        assert run.last is not None
        assert like.last is not None
        assert run.last.finished is not None
        assert run.last.finished["output_tokens"] == len(like.output_ids)


def test_an_end_token_within_accepted_drafts_ends_the_sequence(tiny: Tiny, drive: Drive) -> None:
    expected = tiny.greedy(PROMPTS[4], 40)
    at = next(at for at, each in enumerate(expected) if at > 8 and each < 360)
    ending = tiny.tokenizer.convert_ids_to_tokens(expected[at])
    at = expected.index(expected[at])
    manifest = tiny.bundle.manifest.model_copy(
        update={
            "output": {"stop_tokens": [ending]},
            "execution": tiny.bundle.manifest.execution.model_copy(
                update={"options": {"speculation": drafts_of(tiny)}}
            ),
        }
    )
    engine = load(replace(tiny.bundle, manifest=manifest), EngineSettings(state_bytes=2**20))
    (run,) = drive(engine, [item(PROMPTS[4], 40)])
    assert run.output_ids == expected[: at + 1]
    assert run.deltas[-1].finish_reason == "stop"


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_no_more_tokens_come_than_were_asked_for(
    tiny: Tiny, drive: Drive, speculation: dict[str, object], count: int
) -> None:
    engine = tiny.engine(speculation=speculation)  # type: ignore[arg-type]
    (run,) = drive(engine, [item(PROMPTS[4], count)])
    assert run.output_ids == tiny.greedy(PROMPTS[4], count)
    assert run.deltas[-1].finish_reason == "length"


def test_steps_with_many_rows_have_no_drafts(tiny: Tiny) -> None:
    engine = tiny.engine(speculation=drafts_of(tiny, max_rows=4))  # type: ignore[arg-type]
    slots = [engine.start(engine.plan(item(each), "tenant")) for each in PROMPTS[:6]]
    engine.step([Quantum(slot=slot, units=100) for slot in slots])

    def advance(count: int) -> list[int]:
        progress = engine.step([Quantum(slot=slot, units=1) for slot in slots[:count]])
        return [each.units for each in progress]

    assert advance(6) == [1] * 6
    assert advance(4) == [1] * 4
    assert sum(advance(3)) == 4
    assert sum(advance(1)) == 4


def test_drafts_that_are_refused_are_given_up(tiny: Tiny, drive: Drive, tmp_path: Path) -> None:
    other = save_tiny(tmp_path, llama_config(), seed=8)
    engine = tiny.engine(speculation=drafts_of(other))  # type: ignore[arg-type]
    (run,) = drive(engine, [item(PROMPTS[4], 100)])
    assert run.output_ids == tiny.greedy(PROMPTS[4], 100)
    assert 0 < engine.tallies()["draft_tokens"] < 60


def test_penalties_are_drawn_token_by_token(
    tiny: Tiny, drive: Drive, speculation: dict[str, object]
) -> None:
    engine: GenerationEngine = tiny.engine(speculation=speculation)  # type: ignore[arg-type]
    (run,) = drive(engine, [item(PROMPTS[4], sampling=SAMPLED[2])])
    assert set(lengths(run)) == {1}
    assert engine.tallies()["draft_tokens"] == 0


@pytest.mark.parametrize(
    ("speculation", "param"),
    [
        ({"method": "guess"}, "execution.options.speculation"),
        ({"method": "prompt_lookup", "tokens": 0}, "execution.options.speculation"),
        ({"method": "draft"}, "execution.options.speculation"),
    ],
)
def test_options_that_are_none_are_refused(
    tiny: Tiny, speculation: dict[str, object], param: str
) -> None:
    with pytest.raises(BundleError) as refusal:
        tiny.engine(speculation=speculation)  # type: ignore[arg-type]
    assert refusal.value.param is not None
    assert refusal.value.param.startswith(param)


def test_a_draft_bundle_with_other_tokens_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    other = save_tiny(tmp_path, llama_config())
    path = tmp_path / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[10:12]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(tokenizer))
    changed = replace(other, bundle=bundle_of(tmp_path, "LlamaForCausalLM"))
    with pytest.raises(BundleError, match="other tokens"):
        tiny.engine(speculation=drafts_of(changed))  # type: ignore[arg-type]


def test_a_draft_bundle_that_is_not_there_is_refused(tiny: Tiny) -> None:
    with pytest.raises(BundleError, match="nowhere"):
        tiny.engine(speculation={"method": "draft", "bundle": "nowhere"})
