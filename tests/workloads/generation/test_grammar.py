"""Outputs that are held to a form, with tiny models that would write anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pydantic import TypeAdapter

from headpond.engine import EngineSettings, Immediate, Json
from headpond.errors import InvalidRequest
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.items import (
    Constraint,
    DetokenizeItem,
    GenerationItem,
    Message,
    Prompt,
    Sampling,
    TokenizeItem,
    Tokens,
    Tool,
    ToolName,
)
from workloads.generation.conftest import llama_config, save_tiny

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
TIME = Tool(name="time", parameters={"type": "object", "properties": {}})


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> GenerationEngine:
    """An engine whose bundle says that its model calls tools."""
    config = llama_config()
    config.max_position_embeddings = 2048
    tiny = save_tiny(tmp_path_factory.mktemp("caller"), config)
    output: dict[str, Json] = {
        "stop_tokens": ["<|im_end|>"],
        "tool_syntax": "hermes",
        "reasoning": {"begin": "<think>", "end": "</think>"},
    }
    manifest = tiny.bundle.manifest.model_copy(update={"output": output})
    return load(replace(tiny.bundle, manifest=manifest), EngineSettings(state_bytes=2**22))


def held(constraint: Constraint, seed: int, **more: object) -> GenerationItem:
    return GenerationItem(
        prompt=PROMPT,
        max_output_tokens=90,
        sampling=Sampling(seed=seed, temperature=0.7),
        constraint=constraint,
        **more,  # type: ignore[arg-type]
    )


FORMS = {
    "choice": (Constraint(kind="choice", source='["yes", "no \\"é\\""]'), r'yes|no "é"'),
    "regex": (Constraint(kind="regex", source="[0-9]{3}-[a-f]{2}"), r"[0-9]{3}-[a-f]{2}"),
    "lark": (Constraint(kind="lark", source='start: "a" "b"+ "c"'), r"ab+c"),
}


@pytest.mark.parametrize("form", FORMS)
def test_outputs_have_their_form(caller: GenerationEngine, drive: Drive, form: str) -> None:
    constraint, expression = FORMS[form]
    runs = drive(caller, [held(constraint, seed) for seed in range(8)])
    for run in runs:
        finished = run.deltas[-1].finish_reason
        assert re.fullmatch(expression, run.text) or finished == "length"
    assert any(run.deltas[-1].finish_reason == "stop" for run in runs)


def test_json_follows_its_schema_in_company_of_free_text(
    caller: GenerationEngine, drive: Drive
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0, "maximum": 9},
            "ok": {"enum": [True]},
        },
        "required": ["n", "ok"],
        "additionalProperties": False,
    }
    constraint = Constraint(kind="json_schema", source=json.dumps(schema))
    free = GenerationItem(prompt=PROMPT, max_output_tokens=30, sampling=Sampling(seed=1))
    runs = drive(caller, [held(constraint, 1), free, held(constraint, 2), held(constraint, 3)])
    whole = [
        run for at, run in enumerate(runs) if at != 1 and run.deltas[-1].finish_reason == "stop"
    ]
    assert whole
    for run in whole:
        value = TypeAdapter(dict[str, int | bool]).validate_json(run.text)
        assert value.keys() == {"n", "ok"}
        assert 0 <= value["n"] <= 9


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(kind="regex", source="(((", param="guided_regex"),
        Constraint(kind="json_schema", source='{"type": "wat"}', param="schema"),
        Constraint(kind="json_schema", source="[", param="schema"),
        Constraint(kind="lark", source="start: nothing", param="guided_grammar"),
        Constraint(kind="lark", source="x" * 2**20, param="guided_grammar"),
    ],
)
def test_a_form_that_is_none_is_refused_by_name(
    caller: GenerationEngine, constraint: Constraint
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        caller.plan(held(constraint, 1), "tenant")
    assert refusal.value.param == constraint.param


class TestTools:
    def item(self, choice: str, *, parallel: bool = False) -> GenerationItem:
        return GenerationItem(
            prompt=replace(PROMPT, tools=(WEATHER, TIME)),
            max_output_tokens=400,
            sampling=Sampling(seed=3, temperature=0.5),
            tool_choice=ToolName(choice),
            parallel_tool_calls=parallel,
        )

    def test_a_named_tool_is_called(self, caller: GenerationEngine, drive: Drive) -> None:
        (run,) = drive(caller, [self.item("weather")])
        (call,) = [call for delta in run.deltas for call in delta.tool_calls]
        assert run.deltas[-1].finish_reason == "tool_calls"
        assert run.text.strip() == ""
        assert call.name == "weather"
        arguments = json.loads(call.arguments)
        assert arguments["city"] in {"Rome", "Oslo"}
        assert arguments["days"] in {1, 2}

    def test_a_model_that_calls_none_refuses_tools(self, engine: GenerationEngine) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            engine.plan(self.item("auto"), "tenant")
        assert refusal.value.param == "tools"
        unasked = replace(self.item("none"), max_output_tokens=9)
        assert engine.plan(unasked, "tenant").prepared.matcher is None

    def test_the_prompt_tells_of_tools(self, caller: GenerationEngine) -> None:
        def prompt(item: GenerationItem) -> str:
            tokens = caller.plan(item, "tenant").prepared.token_ids
            answer = caller.plan(DetokenizeItem(token_ids=tokens), "tenant").answer
            assert isinstance(answer, Immediate)
            (spelled,) = answer.outputs
            assert isinstance(spelled, Tokens)
            return spelled.text

        told = prompt(self.item("auto"))
        assert '"weather"' in told
        assert "What the weather is." in told
        assert "weather" not in prompt(self.item("none"))


class TestTokens:
    def tokens(self, engine: GenerationEngine, item: TokenizeItem | DetokenizeItem) -> Tokens:
        answer = engine.plan(item, "tenant").answer
        assert isinstance(answer, Immediate)
        (tokens,) = answer.outputs
        assert isinstance(tokens, Tokens)
        return tokens

    def test_text_and_tokens_are_each_other(self, engine: GenerationEngine, tiny: Tiny) -> None:
        text = "The quick brown fox, Grüße 👋🏽"
        tokens = self.tokens(engine, TokenizeItem(prompt=Prompt(text=text)))
        assert list(tokens.token_ids) == tiny.tokenizer.encode(text)
        assert len(tokens.pieces) == len(tokens.token_ids)
        assert tokens.context_tokens == 160
        back = self.tokens(engine, DetokenizeItem(token_ids=tokens.token_ids))
        assert back.text == text

    def test_a_conversation_may_end_before_the_answer(self, engine: GenerationEngine) -> None:
        with_prompt = self.tokens(engine, TokenizeItem(prompt=PROMPT))
        without = self.tokens(engine, TokenizeItem(prompt=PROMPT, add_generation_prompt=False))
        assert with_prompt.token_ids[: len(without.token_ids)] == without.token_ids
        assert len(with_prompt.token_ids) > len(without.token_ids)

    def test_unknown_ids_are_refused(self, engine: GenerationEngine) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            engine.plan(DetokenizeItem(token_ids=(1, 10**6)), "tenant")
        assert refusal.value.param == "tokens"
