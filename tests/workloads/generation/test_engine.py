from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from headpond.engine import EngineSettings, Quantum
from headpond.errors import BundleError, ContextLengthExceeded, EngineFailed, InvalidRequest
from headpond.units import Work
from headpond_workloads.generation.engine.blocks import BlocksExhausted
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.items import (
    GenerationItem,
    Message,
    Prompt,
    Sampling,
    TokenRules,
    TokenUsage,
)
from headpond_workloads.generation.record import record

if TYPE_CHECKING:
    from workloads.generation.conftest import Drive, Tiny

GREEDY = Sampling(temperature=0.0)
PROMPTS = [
    tuple((at * 7 + which * 31) % 390 for at in range(length))
    for which, length in enumerate([1, 5, 16, 17, 33, 2, 48, 11])
]


def item(
    token_ids: tuple[int, ...], count: int | None = 20, sampling: Sampling = GREEDY, **more: object
) -> GenerationItem:
    prompt = Prompt(token_ids=token_ids)
    return GenerationItem(prompt=prompt, max_output_tokens=count, sampling=sampling, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chunk", "stagger"), [(512, 0), (512, 1), (16, 1), (5, 2), (1, 0), (7, 30)]
)
def test_greedy_tokens_are_those_of_transformers(
    any_tiny: Tiny, drive: Drive, chunk: int, stagger: int
) -> None:
    engine = any_tiny.engine()
    runs = drive(engine, [item(each) for each in PROMPTS], chunk=chunk, stagger=stagger)
    assert [run.output_ids for run in runs] == [any_tiny.greedy(each, 20) for each in PROMPTS]
    assert engine.free_blocks == 64


def test_tokens_vary_enough_for_equality_to_mean_something(tiny: Tiny) -> None:
    assert all(len(set(tiny.greedy(each, 20))) > 5 for each in PROMPTS)


SAMPLED = [
    Sampling(seed=11, temperature=0.8, top_p=0.9),
    Sampling(seed=5, temperature=1.5, min_p=0.05),
    Sampling(seed=7, presence_penalty=1.0, frequency_penalty=0.5),
    Sampling(seed=2**62, repetition_penalty=1.3, top_k=30),
]


@pytest.mark.parametrize("chunk", [512, 9])
@pytest.mark.parametrize("preempt_every", [0, 5])
def test_samples_do_not_depend_on_company_chunks_or_preemption(
    engine: GenerationEngine, drive: Drive, chunk: int, preempt_every: int
) -> None:
    items = [item(each, sampling=SAMPLED[at % 4]) for at, each in enumerate(PROMPTS)]
    alone = [drive(engine, [each])[0].output_ids for each in items]
    runs = drive(engine, items, chunk=chunk, stagger=1, preempt_every=preempt_every)
    assert [run.output_ids for run in runs] == alone
    assert engine.free_blocks == 64


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("preempt_every", [4, 7])
def test_preemption_changes_nothing_that_is_given_out(
    tiny: Tiny, drive: Drive, preempt_every: int, prefix_cache: bool
) -> None:
    engine = tiny.engine(prefix_cache=prefix_cache)
    items = [item(each, logprobs=2, stop=("zzz",)) for each in PROMPTS]
    calm = drive(engine, items)
    stormy = drive(engine, items, preempt_every=preempt_every, chunk=13)
    for before, after in zip(calm, stormy, strict=True):
        assert after.output_ids == before.output_ids
        assert after.text == before.text
        usages = before.deltas[-1].usage, after.deltas[-1].usage
        prompt, completion = (
            {getattr(usage, name) for usage in usages}
            for name in ("prompt_tokens", "completion_tokens")
        )
        assert len(prompt) == len(completion) == 1


def test_preempting_says_how_much_is_to_be_computed_again(engine: GenerationEngine) -> None:
    slot = engine.start(engine.plan(item(PROMPTS[4]), "tenant"))
    engine.step([Quantum(slot=slot, units=20)])
    assert engine.preempt(slot) == 20
    assert engine.free_blocks == 64
    engine.step([Quantum(slot=slot, units=33)])
    engine.step([Quantum(slot=slot, units=1)])
    assert engine.preempt(slot) == 34
    # Computing again gives nothing out, and goes no further than where it was.
    (again,) = engine.step([Quantum(slot=slot, units=100)])
    assert (again.units, again.outputs) == (34, ())
    (next_one,) = engine.step([Quantum(slot=slot, units=1)])
    assert len(next_one.outputs) == 1


def test_a_finished_item_says_what_it_came_to(engine: GenerationEngine, drive: Drive) -> None:
    (run,) = drive(engine, [item(PROMPTS[3], 6)])
    assert [delta.finish_reason for delta in run.deltas] == [None] * 5 + ["length"]
    assert run.deltas[-1].usage == TokenUsage(prompt_tokens=17, completion_tokens=6)
    assert run.last is not None
    assert run.last.finished == Work(input_tokens=17, output_tokens=6)


def test_the_phase_changes_with_the_first_token(engine: GenerationEngine) -> None:
    slot = engine.start(engine.plan(item(PROMPTS[3], 6), "tenant"))
    phases = [engine.step([Quantum(slot=slot, units=9)])[0].phase for _ in range(3)]
    assert phases == [None, "decode", None]
    assert phases[1] in {phase.name for phase in record.phases}
    engine.release(slot)


def test_an_end_token_stops_and_is_not_shown(tiny: Tiny, drive: Drive) -> None:
    expected = tiny.greedy(PROMPTS[1], 20)
    ending = tiny.tokenizer.convert_ids_to_tokens(next(each for each in expected if each < 360))
    bundle = tiny.bundle.manifest.model_copy(update={"output": {"stop_tokens": [ending]}})
    engine = load(
        type(tiny.bundle)(manifest=bundle, root=tiny.bundle.root, files=tiny.bundle.files),
        EngineSettings(state_bytes=2**20),
    )
    stopped, ignored = drive(
        engine, [item(PROMPTS[1]), item(PROMPTS[1], ignore_eos=True)], stagger=1
    )
    at = [each < 360 for each in expected].index(True)
    assert stopped.output_ids == expected[: at + 1]
    assert stopped.deltas[-1].finish_reason == "stop"
    assert ignored.output_ids == expected


def test_a_stop_string_ends_the_text_before_it(engine: GenerationEngine, drive: Drive) -> None:
    (free,) = drive(engine, [item(PROMPTS[2], 40)])
    middle = len(free.text) // 2
    stop = free.text[middle : middle + 3]
    (run,) = drive(engine, [item(PROMPTS[2], 40, stop=(stop,))])
    assert run.text == free.text[: free.text.index(stop)]
    assert run.deltas[-1].finish_reason == "stop"
    assert len(run.output_ids) < len(free.output_ids)


def test_a_stop_token_ends_the_text_before_it(engine: GenerationEngine, drive: Drive) -> None:
    (plain,) = drive(engine, [item(PROMPTS[3])])
    at = next(at for at in range(4, 20) if plain.output_ids[at] not in plain.output_ids[:at])
    ends = plain.output_ids[at]
    run, shown, late = drive(
        engine,
        [
            item(PROMPTS[3], stop_ids=(ends,), ignore_eos=True),
            item(PROMPTS[3], stop_ids=(ends,), include_stop=True),
            item(PROMPTS[3], stop_ids=(ends,), rules=TokenRules(min_tokens=20)),
        ],
    )
    assert run.output_ids == shown.output_ids == plain.output_ids[: at + 1]
    assert run.deltas[-1].finish_reason == shown.deltas[-1].finish_reason == "stop"
    said = engine.observe({"token_ids": list(PROMPTS[3]), "max_tokens": at})["text"]
    assert run.text == said
    assert plain.text.startswith(shown.text)
    assert len(shown.text) > len(run.text)
    assert late.deltas[-1].finish_reason == "length"
    assert ends not in late.output_ids


def test_control_tokens_can_be_shown(engine: GenerationEngine, drive: Drive) -> None:
    only = TokenRules(allowed_ids=(1,))
    hidden, shown = drive(
        engine,
        [
            item((5,), 3, rules=only),
            item((5,), 3, rules=only, show_control=True, logprobs=0),
        ],
    )
    assert (hidden.text, shown.text) == ("", "<|im_start|>" * 3)
    raw = b"".join(each.chosen.raw for delta in shown.deltas for each in delta.logprobs)
    assert raw.decode() == shown.text


def test_only_allowed_tokens_come(engine: GenerationEngine, drive: Drive) -> None:
    allowed = (40, 41, 300)
    runs = drive(
        engine,
        [
            item(PROMPTS[at], rules=TokenRules(allowed_ids=allowed), sampling=Sampling(seed=at))
            for at in range(4)
        ],
    )
    assert {each for run in runs for each in run.output_ids} == set(allowed)


def test_bad_words_do_not_come(engine: GenerationEngine, drive: Drive) -> None:
    (plain,) = drive(engine, [item(PROMPTS[4], logprobs=0)])
    chosen = [each.chosen for delta in plain.deltas for each in delta.logprobs]
    banned = next(each for each in chosen if each.token.isascii() and each.token.strip())
    words = TokenRules(bad_words=(banned.token,))
    (run,) = drive(engine, [item(PROMPTS[4], rules=words)])
    assert banned.token_id not in run.output_ids
    assert len(run.output_ids) == 20


def test_a_longer_prompt_is_cut_from_the_left(engine: GenerationEngine, drive: Drive) -> None:
    long = tuple(at * 7 % 390 for at in range(400))
    cut, fits, kept, echoed = drive(
        engine,
        [
            GenerationItem(prompt=Prompt(token_ids=long, most_tokens=10), max_output_tokens=5),
            GenerationItem(prompt=Prompt(token_ids=long, most_tokens="what fits")),
            GenerationItem(prompt=Prompt(token_ids=(5, 6), most_tokens=10), max_output_tokens=5),
            GenerationItem(
                prompt=Prompt(text="So it is, and so", most_tokens=2),
                max_output_tokens=0,
                echo=True,
            ),
        ],
    )
    assert cut.slot.prepared.token_ids == long[-10:]
    assert fits.slot.prepared.token_ids == long[-159:]
    assert kept.slot.prepared.token_ids == (5, 6)
    assert echoed.slot.prompt_tokens == 2
    assert "So it is, and so".endswith(echoed.text)
    assert 0 < len(echoed.text) < 16


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop_ids": (400,)}, "stop_token_ids"),
        ({"rules": TokenRules(allowed_ids=(5, 400))}, "allowed_token_ids"),
        ({"rules": TokenRules(min_tokens=21)}, "min_tokens"),
    ],
)
def test_rules_that_cannot_be_held_are_refused(
    engine: GenerationEngine, fields: dict[str, object], param: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        engine.plan(item((1,), 20, GREEDY, **fields), "tenant")
    assert refusal.value.param == param


def test_rules_that_leave_no_token_fail_the_item_alone(
    engine: GenerationEngine, drive: Drive
) -> None:
    nothing = TokenRules(allowed_ids=(7,), min_tokens=3)
    failed, other = drive(engine, [item((5,), rules=nothing, stop_ids=(7,)), item((5,))])
    assert failed.last is not None
    assert isinstance(failed.last.error, InvalidRequest)
    assert failed.last.error.param == "allowed_token_ids"
    assert len(other.output_ids) == 20


def test_a_salt_keeps_cached_prefixes_apart(engine: GenerationEngine, drive: Drive) -> None:
    prompt = PROMPTS[6]
    salted = item(prompt, cache_salt="a")
    drive(engine, [item(prompt)])
    assert engine.plan(item(prompt), "tenant").shape["cached_tokens"] == 32
    assert engine.plan(salted, "tenant").shape["cached_tokens"] == 0
    drive(engine, [salted])
    assert engine.plan(salted, "tenant").shape["cached_tokens"] == 32
    assert engine.plan(item(prompt, cache_salt="b"), "tenant").shape["cached_tokens"] == 0


def test_bytes_of_logprobs_join_to_the_exact_text(
    tiny: Tiny, engine: GenerationEngine, drive: Drive
) -> None:
    (run,) = drive(engine, [item(PROMPTS[6], 60, Sampling(seed=1, temperature=2.0), logprobs=3)])
    chosen = [entry.chosen for delta in run.deltas for entry in delta.logprobs]
    assert [entry.token_id for entry in chosen] == run.output_ids
    joined = b"".join(entry.raw for entry in chosen).decode(errors="replace")
    assert joined.rstrip("\ufffd") == run.text.rstrip("\ufffd")
    known = [each for each in run.output_ids if each < 360]
    assert joined == tiny.tokenizer.decode(known, skip_special_tokens=True)
    for delta in run.deltas:
        top = [entry.logprob or 0.0 for entry in delta.logprobs[0].top]
        assert len(top) == 3
        assert top == sorted(top, reverse=True)


def test_releasing_a_cancelled_slot_frees_its_blocks(engine: GenerationEngine) -> None:
    slots = [engine.start(engine.plan(item(each), "tenant")) for each in PROMPTS]
    assert engine.free_blocks == 64
    engine.step([Quantum(slot=slot, units=40) for slot in slots])
    assert engine.free_blocks == 64 - sum(-(-min(40, len(each)) // 16) for each in PROMPTS)
    for slot in slots:
        engine.release(slot)
    assert engine.free_blocks == 64


def test_a_step_without_enough_blocks_advances_nobody(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine(blocks=11)  # a request's small state takes a share of the last block
    slots = [engine.start(engine.plan(item(PROMPTS[6], 8), f"tenant {at}")) for at in range(4)]
    with pytest.raises(BlocksExhausted):
        engine.step([Quantum(slot=slot, units=48) for slot in slots])
    for slot in slots[2:]:
        engine.release(slot)
    progress = engine.step([Quantum(slot=slot, units=48) for slot in slots[:2]])
    assert [each.outputs[0].token_ids[0] for each in progress] == [
        tiny.greedy(PROMPTS[6], 1)[0]
    ] * 2
    for slot in slots[:2]:
        engine.release(slot)
    assert engine.free_blocks == 11
    assert drive(engine, [item(PROMPTS[6], 8)])[0].output_ids == tiny.greedy(PROMPTS[6], 8)


def test_a_forward_that_fails_advances_nobody(
    tiny: Tiny, engine: GenerationEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = [engine.start(engine.plan(item(each), "tenant")) for each in PROMPTS[:3]]

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as broken:
        broken.setattr(torch.nn.functional, "linear", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            engine.step([Quantum(slot=slot, units=16) for slot in slots])
    progress = engine.step([Quantum(slot=slot, units=16) for slot in slots])
    assert [each.outputs[0].token_ids[0] for each in progress] == [
        tiny.greedy(each, 1)[0] for each in PROMPTS[:3]
    ]


def test_a_poisoned_sequence_fails_alone_and_leaves_nothing_behind(
    tiny: Tiny, drive: Drive
) -> None:
    expected = [tiny.greedy(each, 20) for each in PROMPTS[:4]]
    poison = min(set(range(390)) - {each for row in [*expected, *PROMPTS] for each in row})
    poisoned = tiny.bundle.root / "poisoned"
    poisoned.mkdir(exist_ok=True)
    reference = type(tiny.reference)(tiny.reference.config)
    reference.load_state_dict(tiny.reference.state_dict())
    reference.get_input_embeddings().weight.data[poison] = float("nan")  # type: ignore[operator]
    reference.save_pretrained(poisoned)
    files = {**tiny.bundle.files, "weights": poisoned / "model.safetensors"}
    engine = load(
        type(tiny.bundle)(manifest=tiny.bundle.manifest, root=poisoned, files=files),
        EngineSettings(state_bytes=8 * 16 * 2 * 2 * 2 * 8 * 4 + 4096),
    )
    bad = item((poison, *PROMPTS[3]))
    runs = drive(engine, [bad, item(PROMPTS[3])], chunk=6)
    assert runs[0].last is not None
    assert isinstance(runs[0].last.error, EngineFailed)
    # The blocks it held are used again, by a neighbour and by those that come after.
    assert runs[1].output_ids == expected[3]
    for prompt, output_ids in zip(PROMPTS, expected, strict=False):
        assert drive(engine, [item(prompt)], chunk=6)[0].output_ids == output_ids
    longer = item((poison, *PROMPTS[4]))
    drive(engine, [longer], chunk=6)
    assert engine.plan(longer, "tenant").shape["cached_tokens"] == 0


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(
    engine: GenerationEngine,
) -> None:
    for length in (160, 500):
        with pytest.raises(
            ContextLengthExceeded, match=rf"160 tokens.* {length} tokens"
        ) as refusal:
            engine.plan(item((1,) * length), "tenant")
        assert refusal.value.param == "prompt"


def test_output_beyond_the_context_is_refused_when_it_was_asked_for(
    engine: GenerationEngine,
) -> None:
    assert engine.plan(item((1,) * 100, 60), "tenant").shape["max_output_tokens"] == 60
    with pytest.raises(ContextLengthExceeded, match=r"161 tokens \(100 .* 61 ") as refusal:
        engine.plan(item((1,) * 100, 61, max_tokens_param="max_completion_tokens"), "tenant")
    assert refusal.value.param == "max_completion_tokens"
    with pytest.raises(InvalidRequest) as too_few:
        engine.plan(item((1,), 0), "tenant")
    assert too_few.value.param == "max_tokens"


def test_without_a_wish_the_context_is_the_bound(engine: GenerationEngine, drive: Drive) -> None:
    assert engine.plan(item((1,) * 150, None), "tenant").shape["max_output_tokens"] == 10
    assert len(drive(engine, [item((1,) * 150, None)])[0].output_ids) == 10


def test_the_context_is_what_the_memory_holds_when_that_is_less(tiny: Tiny) -> None:
    engine = tiny.engine(blocks=4)
    state = record.bind(engine.symbols, "float32")
    plan = engine.plan(item((1,) * 20, None), "tenant")
    extent = plan.shape["prompt_tokens"] + plan.shape["max_output_tokens"]
    assert extent == 48
    assert state.request_bytes(plan.shape, extent) <= 4 * 16 * 2 * 2 * 2 * 8 * 4


@pytest.mark.parametrize("token_id", [-1, 400])
def test_a_bias_outside_the_vocabulary_is_refused(engine: GenerationEngine, token_id: int) -> None:
    with pytest.raises(InvalidRequest, match=str(token_id)) as refusal:
        engine.plan(item((1,), sampling=Sampling(logit_bias={token_id: 1.0})), "tenant")
    assert refusal.value.param == "logit_bias"


def test_an_adapter_that_is_not_there_is_refused(engine: GenerationEngine) -> None:
    with pytest.raises(InvalidRequest, match="poet") as refusal:
        engine.plan(item(PROMPTS[0], adapter="poet"), "tenant")
    assert refusal.value.param == "adapter"


def test_a_fixture_is_computed_contract_by_contract(tiny: Tiny, engine: GenerationEngine) -> None:
    seen = engine.observe({"messages": [{"role": "user", "content": "Grüße"}], "max_tokens": 5})
    prompt = Prompt(messages=(Message(role="user", content="Grüße"),))
    input_ids = list(engine.plan(GenerationItem(prompt=prompt), "tenant").prepared.token_ids)
    assert list(seen) == [contract.name for contract in record.contracts]
    assert seen["input_ids"] == input_ids
    assert seen["output_ids"] == tiny.greedy(input_ids, 5)
    assert isinstance(seen["text"], str)
    assert engine.free_blocks == 64


@pytest.mark.parametrize("given", [{}, {"text": "a", "token_ids": [1]}, {"txt": "a"}, {"text": 3}])
def test_a_fixture_that_is_none_is_the_bundles_mistake(
    engine: GenerationEngine, given: dict[str, object]
) -> None:
    with pytest.raises(BundleError):
        engine.observe(given)  # type: ignore[arg-type]
