"""Outputs that are held to a form, with tiny models that would write anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tokenizers import AddedToken

from headpond.engine import EngineSettings, Immediate, Json
from headpond.errors import BundleError, EngineFailed, InvalidRequest
from headpond_workloads.generation.engine.conversation import Ways
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.items import (
    Constraint,
    DetokenizeItem,
    GenerationItem,
    Message,
    Prompt,
    Sampling,
    Tokens,
    Tool,
    ToolName,
)
from workloads.generation.conftest import llama_config, runner_of, save_tiny

if TYPE_CHECKING:
    from workloads.generation.conftest import Drive, Tiny

PROMPT = Prompt(messages=(Message(role="user", content="hi"),))
WEATHER = Tool(
    name="weather",
    description="What the weather is.",
    parameters={
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"$ref": "#/$defs/days"}},
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {"days": {"enum": [1, 2]}},
    },
)
TIME = Tool(name="time", parameters={"type": "object", "additionalProperties": False})
BOTH: Json = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}, "ok": {"enum": [True]}},
    "required": ["n", "ok"],
    "additionalProperties": False,
}
THINK: dict[str, Json] = {"begin": "<think>", "end": "</think>"}
MARKS = ["<think>", "</think>", "[TOOL_CALLS]", "<tool_call>", "</tool_call>"]

Make = Callable[..., GenerationEngine]


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    config = llama_config()
    config.max_position_embeddings = 2048
    return save_tiny(tmp_path_factory.mktemp("roomy"), config)


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A model whose marks are tokens, as they are in most families."""
    config = llama_config()
    config.max_position_embeddings = 2048
    return save_tiny(
        tmp_path_factory.mktemp("marked"),
        config,
        tokens=[AddedToken(mark, special=mark[0] == "[") for mark in MARKS],
    )


def made(tiny: Tiny, **output: Json) -> GenerationEngine:
    declared: dict[str, Json] = {"stop_tokens": ["<|im_end|>"], **output}
    manifest = tiny.bundle.manifest.model_copy(update={"output": declared})
    return load(replace(tiny.bundle, manifest=manifest), EngineSettings(state_bytes=2**22))


def held(constraint: Constraint | None, seed: int, **more: object) -> GenerationItem:
    given: dict[str, object] = {
        "prompt": PROMPT,
        "max_output_tokens": 90,
        "sampling": Sampling(seed=seed, temperature=0.7),
        "constraint": constraint,
    }
    return GenerationItem(**(given | more))  # type: ignore[arg-type]


FORMS = {
    "choice": (Constraint(kind="choice", source='["yes", "no \\"é\\""]'), r'yes|no "é"'),
    "regex": (Constraint(kind="regex", source="[0-9]{3}-[a-f]{2}"), r"[0-9]{3}-[a-f]{2}"),
    "lark": (Constraint(kind="lark", source='start: "a" "b"+ "c"'), r"ab+c"),
    "json": (
        Constraint(kind="json_schema", source=json.dumps(BOTH)),
        r'\{\s*"n"\s*:\s*[0-9]\s*,\s*"ok"\s*:\s*true\s*\}',
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_outputs_have_their_form_in_company_of_free_text(
    roomy: Tiny, drive: Drive, form: str
) -> None:
    constraint, expression = FORMS[form]
    free = [held(None, seed, max_output_tokens=30) for seed in range(3)]
    engine = made(roomy)
    alone = drive(engine, [free[0]])
    runs = drive(engine, [*free, *(held(constraint, seed) for seed in range(6))], preempt_every=11)
    assert runs[0].output_ids == alone[0].output_ids
    reasons = [run.deltas[-1].finish_reason for run in runs[3:]]
    assert reasons.count("stop") >= 3
    for run, reason in zip(runs[3:], reasons, strict=True):
        assert re.fullmatch(expression, run.text) or reason == "length"


def test_company_and_preemption_leave_held_outputs_as_they_are(roomy: Tiny, drive: Drive) -> None:
    engine = made(roomy)
    items = [held(constraint, 5) for constraint, _ in FORMS.values()]
    alone = [drive(engine, [each])[0].output_ids for each in items]
    together = drive(engine, items, stagger=2, chunk=5, preempt_every=7)
    assert [run.output_ids for run in together] == alone


def test_biases_penalties_stops_and_lengths_apply_within_a_form(roomy: Tiny, drive: Drive) -> None:
    engine = made(roomy)
    yes_or_no = Constraint(kind="choice", source='["yes", "no"]')
    (letter,) = roomy.tokenizer.encode("n")
    for amount, text in ((100.0, "no"), (-100.0, "yes")):
        sampling = Sampling(temperature=0, logit_bias={letter: amount}, repetition_penalty=1.3)
        (run,) = drive(engine, [held(yes_or_no, 1, sampling=sampling)])
        assert run.text == text
    digits = Constraint(kind="regex", source="[0-9]{40}")
    (short,) = drive(engine, [held(digits, 1, max_output_tokens=5)])
    assert short.deltas[-1].finish_reason == "length"
    assert re.fullmatch("[0-9]+", short.text)
    (stopped,) = drive(engine, [held(digits, 1, stop=(short.text[2],))])
    assert stopped.deltas[-1].finish_reason == "stop"
    assert stopped.text == short.text[: short.text.index(short.text[2])]


def test_the_end_token_comes_only_when_the_form_is_whole(roomy: Tiny, drive: Drive) -> None:
    engine = made(roomy)
    (end,) = engine.plan(held(None, 1), "tenant").prepared.token_ids[:0] or (2,)
    sampling = Sampling(temperature=0, logit_bias={end: 100.0})
    (run,) = drive(engine, [held(Constraint(kind="regex", source="ab*"), 1, sampling=sampling)])
    assert run.text == "a"
    assert run.output_ids[-1] == end


def test_samples_of_one_request_are_all_held(roomy: Tiny, drive: Drive) -> None:
    constraint, expression = FORMS["regex"]
    runs = drive(made(roomy), [held(constraint, seed) for seed in range(4)])
    assert all(re.fullmatch(expression, run.text) for run in runs)
    assert len({run.text for run in runs}) > 1


def test_a_form_that_gets_too_hard_ends_its_own_sequence_only(roomy: Tiny, drive: Drive) -> None:
    engine = made(roomy)
    (letter,) = roomy.tokenizer.encode("a")
    repeated = Constraint(kind="regex", source="((a{1,100}){1,100}){1,100}", param="guided_regex")
    biased = Sampling(temperature=0, logit_bias={letter: 100.0})
    fine = held(None, 2, max_output_tokens=40)
    hard, other = drive(engine, [held(repeated, 1, sampling=biased, max_output_tokens=150), fine])
    assert hard.last is not None
    assert isinstance(hard.last.error, InvalidRequest)
    assert hard.last.error.param == "guided_regex"
    assert other.output_ids == drive(engine, [fine])[0].output_ids
    assert engine.free_blocks > 0


def test_logits_that_leave_nothing_of_the_form_fail_their_sequence_only(
    roomy: Tiny, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = made(roomy)
    forward = runner_of(engine).forward
    digits = roomy.tokenizer.convert_tokens_to_ids(list("0123456789"))

    def without_digits(spans: object) -> object:
        logits = forward(spans)  # type: ignore[arg-type]
        logits.values()[:, digits] = float("-inf")
        return logits

    monkeypatch.setattr(runner_of(engine), "forward", without_digits)
    letter = Constraint(kind="regex", source="[a-f]{3}")
    failed, fine = drive(
        engine, [held(Constraint(kind="regex", source="[0-9]"), 1), held(letter, 1)]
    )
    assert failed.last is not None
    assert isinstance(failed.last.error, EngineFailed)
    assert re.fullmatch("[a-f]{3}", fine.text)


class TestReasoning:
    def test_a_form_begins_behind_reasoning(self, marked: Tiny, drive: Drive) -> None:
        engine = made(marked, reasoning=THINK)
        begin, end = (marked.tokenizer.get_vocab()[mark] for mark in MARKS[:2])
        constraint, expression = FORMS["regex"]
        eager = Sampling(seed=1, logit_bias={begin: 100.0})
        (cut,) = drive(engine, [held(constraint, 1, sampling=eager, max_output_tokens=9)])
        assert cut.output_ids[0] == begin
        assert cut.text == ""
        assert cut.deltas[-1].usage is not None
        assert cut.deltas[-1].usage.reasoning_tokens == 8
        brief = Sampling(seed=1, logit_bias={begin: 100.0, end: 90.0})
        (run,) = drive(engine, [held(constraint, 1, sampling=brief)])
        assert run.output_ids[:2] == [begin, end]
        assert re.fullmatch(expression, run.text)

    @pytest.mark.parametrize("form", FORMS)
    def test_a_model_need_not_reason(self, marked: Tiny, drive: Drive, form: str) -> None:
        engine = made(marked, reasoning=THINK)
        begin = marked.tokenizer.get_vocab()["<think>"]
        constraint, expression = FORMS[form]
        sampling = Sampling(seed=1, temperature=0.7, logit_bias={begin: -100.0})
        (run,) = drive(engine, [held(constraint, 1, sampling=sampling)])
        assert re.fullmatch(expression, run.text) or run.deltas[-1].finish_reason == "length"

    def test_a_template_may_begin_it(self, roomy: Tiny, drive: Drive) -> None:
        template = "{% for message in messages %}{{ message.content }}{% endfor %}<think>\n"
        manifest = roomy.bundle.manifest.model_copy(update={"input": {"chat_template": template}})
        tiny = replace(roomy, bundle=replace(roomy.bundle, manifest=manifest))
        (run,) = drive(made(tiny, reasoning=THINK), [held(None, 3, max_output_tokens=20)])
        assert run.text == ""
        assert "".join(delta.reasoning for delta in run.deltas)

    def test_texts_that_are_no_conversation_have_none(self, roomy: Tiny, drive: Drive) -> None:
        engine = made(roomy, reasoning=THINK | {"starts_inside": True})
        item = held(None, 3, prompt=Prompt(text="Once"), max_output_tokens=20)
        (run,) = drive(engine, [item])
        assert run.text
        assert not any(delta.reasoning for delta in run.deltas)


class TestTools:
    def item(self, choice: str, *, parallel: bool = False, **more: object) -> GenerationItem:
        given: dict[str, object] = {
            "prompt": replace(PROMPT, tools=(WEATHER, TIME)),
            "max_output_tokens": 400,
            "sampling": Sampling(seed=3, temperature=0.5),
            "tool_choice": ToolName(choice),
            "parallel_tool_calls": parallel,
        }
        return GenerationItem(**(given | more))  # type: ignore[arg-type]

    @pytest.mark.parametrize("syntax", ["hermes", "smollm", "mistral", "llama3_json"])
    @pytest.mark.parametrize("tokens", [True, False])
    def test_a_named_tool_is_called(
        self, request: pytest.FixtureRequest, drive: Drive, syntax: str, *, tokens: bool
    ) -> None:
        tiny: Tiny = request.getfixturevalue("marked" if tokens else "roomy")
        (run,) = drive(made(tiny, tool_syntax=syntax), [self.item("weather")])
        ((name, written),) = run.calls
        assert run.deltas[-1].finish_reason == "tool_calls"
        assert run.text == ""
        assert name == "weather"
        arguments = json.loads(written)
        assert arguments["city"] in {"Rome", "Oslo"}
        assert arguments["days"] in {1, 2}

    @pytest.mark.parametrize("syntax", ["hermes", "smollm", "mistral", "llama3_json"])
    def test_some_tool_is_called_when_one_must_be(
        self, roomy: Tiny, drive: Drive, syntax: str
    ) -> None:
        engine = made(roomy, tool_syntax=syntax)
        for parallel in (True, False):
            sampling = [Sampling(seed=seed) for seed in range(4)]
            items = [self.item("required", parallel=parallel, sampling=each) for each in sampling]
            for run in drive(engine, items):
                assert run.text == ""
                assert {name for name, _ in run.calls} <= {"weather", "time"}
                reason = run.deltas[-1].finish_reason
                assert reason == "tool_calls" or (parallel and reason == "length")
                assert len(run.calls) == 1 or parallel

    def test_strict_tools_are_held_within_free_text(self, marked: Tiny, drive: Drive) -> None:
        engine = made(marked, tool_syntax="hermes")
        begin = marked.tokenizer.get_vocab()["<tool_call>"]
        strict = replace(WEATHER, strict=True)
        item = self.item(
            "auto",
            prompt=replace(PROMPT, tools=(strict,)),
            sampling=Sampling(seed=3, logit_bias={begin: 9.0}),
        )
        assert engine.plan(item, "tenant").prepared.matcher is not None
        (run,) = drive(engine, [item])
        ((name, written),) = run.calls
        assert name == "weather"
        assert json.loads(written)["city"] in {"Rome", "Oslo"}

    def test_an_answer_may_be_a_call_or_have_its_form(self, marked: Tiny, drive: Drive) -> None:
        engine = made(marked, tool_syntax="hermes")
        begin = marked.tokenizer.get_vocab()["<tool_call>"]
        constraint, expression = FORMS["regex"]
        for bias in (100.0, -100.0):
            sampling = Sampling(seed=3, logit_bias={begin: bias})
            (run,) = drive(engine, [self.item("auto", constraint=constraint, sampling=sampling)])
            assert bool(run.calls) is (bias > 0)
            assert run.calls or re.fullmatch(expression, run.text)

    def test_a_call_that_must_be_needs_no_form_of_text(self, roomy: Tiny, drive: Drive) -> None:
        item = self.item("required", constraint=FORMS["regex"][0])
        (run,) = drive(made(roomy, tool_syntax="hermes"), [item])
        assert run.calls
        assert run.text == ""

    def test_reasoning_may_come_before_a_call(self, marked: Tiny, drive: Drive) -> None:
        engine = made(marked, tool_syntax="hermes", reasoning=THINK)
        begin, end = (marked.tokenizer.get_vocab()[mark] for mark in MARKS[:2])
        sampling = Sampling(seed=1, logit_bias={begin: 100.0, end: 90.0})
        (run,) = drive(engine, [self.item("weather", sampling=sampling)])
        assert run.output_ids[:2] == [begin, end]
        assert [name for name, _ in run.calls] == ["weather"]

    def test_parameters_that_cannot_be_held_are_refused_by_their_tool(self, roomy: Tiny) -> None:
        engine = made(roomy, tool_syntax="hermes")
        broken = Tool(name="broken", parameters={"properties": {"a": {"type": "wat"}}})
        with pytest.raises(InvalidRequest, match="'broken'") as refusal:
            engine.plan(
                self.item("required", prompt=replace(PROMPT, tools=(TIME, broken))), "tenant"
            )
        assert refusal.value.param == "tools"

    def test_what_is_unknown_in_parameters_matters_only_when_strict(self, roomy: Tiny) -> None:
        engine = made(roomy, tool_syntax="hermes")
        odd = Tool(name="odd", parameters={"properties": {"a": {"type": "string", "format": "x"}}})
        engine.plan(self.item("required", prompt=replace(PROMPT, tools=(odd,))), "tenant")
        strict = replace(PROMPT, tools=(replace(odd, strict=True),))
        with pytest.raises(InvalidRequest, match="'odd'"):
            engine.plan(self.item("auto", prompt=strict), "tenant")

    def test_a_model_that_calls_none_refuses_tools(self, engine: GenerationEngine) -> None:
        with pytest.raises(InvalidRequest, match="no tool syntax") as refusal:
            engine.plan(self.item("auto"), "tenant")
        assert refusal.value.param == "tools"
        unasked = replace(self.item("none"), max_output_tokens=9)
        assert engine.plan(unasked, "tenant").prepared.matcher is None

    def test_the_prompt_tells_of_tools_that_may_be_called(self, roomy: Tiny) -> None:
        engine = made(roomy, tool_syntax="hermes")

        def prompt(item: GenerationItem) -> str:
            tokens = engine.plan(item, "tenant").prepared.token_ids
            answer = engine.plan(DetokenizeItem(token_ids=tokens), "tenant").answer
            assert isinstance(answer, Immediate)
            (spelled,) = answer.outputs
            assert isinstance(spelled, Tokens)
            return spelled.text

        told = prompt(self.item("auto"))
        assert '"weather"' in told
        assert "What the weather is." in told
        assert "weather" not in prompt(self.item("none"))


@pytest.mark.parametrize(
    ("section", "declared", "param"),
    [
        ("output", {"tool_syntax": "morse"}, "output.tool_syntax"),
        ("output", {"reasoning": {"begin": "<think>"}}, "output.reasoning.end"),
        ("output", {"reasoning": {"begin": "", "end": "x"}}, "output.reasoning.begin"),
        ("input", {"tool_template": "no place for them"}, "input.tool_template"),
        ("input", {"tool_template": 3}, "input.tool_template"),
    ],
)
def test_ways_that_are_none_are_the_bundles_mistake(
    tiny: Tiny, section: str, declared: dict[str, Json], param: str
) -> None:
    with pytest.raises(BundleError) as refusal:
        Ways.of(tiny.bundle.manifest.model_copy(update={section: declared}))
    assert refusal.value.param == param
