"""Tools and reasoning in chats: what is asked for, and how it is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion as OpenAiChat
from openai.types.chat import ChatCompletionChunk as OpenAiChunk
from pydantic import ValidationError

from headpond.call import Output
from headpond.dialect import Exchange, Heading, Incoming, ItemEvent, rendered
from headpond.engine import Json
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.generation.dialects import routes
from headpond_workloads.generation.items import (
    GenerationItem,
    Message,
    TextDelta,
    TokenUsage,
    Tool,
    ToolCall,
    ToolCallDelta,
)

CHAT = routes[0]
HEADING = Heading(request_id="r-1", created_s=1, model="chat", fingerprint="m@1+abc")
USER = {"role": "user", "content": "hi"}
EMPTY: Mapping[str, Json] = {"type": "object", "properties": {}, "additionalProperties": False}
CITY: Mapping[str, Json] = {"type": "object", "properties": {"city": {"type": "string"}}}


def chat(**fields: object) -> Exchange:
    return CHAT.read(
        Incoming(body=json.dumps({"model": "m", "messages": [USER], **fields}).encode())
    )


def item(exchange: Exchange) -> GenerationItem:
    (only,) = exchange.ask().items
    assert isinstance(only, GenerationItem)
    return only


def function(name: str = "f", **fields: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, **fields}}


def named(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


def call(call_id: str = "c1", name: str = "f", arguments: str = "{}") -> dict[str, object]:
    return {"id": call_id, **function(name, arguments=arguments)}


def said(*turns: Mapping[str, object]) -> tuple[Message, ...]:
    messages = item(chat(messages=[USER, *turns])).prompt.messages
    assert messages is not None
    return messages[1:]


def refused(fields: Mapping[str, object]) -> InvalidRequest:
    exchange = chat(**fields)
    with pytest.raises(InvalidRequest) as refusal:
        exchange.ask()
    return refusal.value


class TestTools:
    def test_tools_are_passed_on(self) -> None:
        tools = [function("f", description="d", parameters=CITY, strict=True), function("g")]
        made = item(chat(tools=tools, parallel_tool_calls=False))
        assert made.prompt.tools == (
            Tool(name="f", description="d", parameters=CITY, strict=True),
            Tool(name="g", parameters=EMPTY),
        )
        assert (made.tool_choice, made.parallel_tool_calls) == ("auto", False)

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            (None, "auto"),
            ("auto", "auto"),
            ("none", "none"),
            ("required", "required"),
            (named("g"), "g"),
        ],
    )
    def test_choices(self, choice: object, expected: str) -> None:
        made = item(chat(tools=[function("f"), function("g")], tool_choice=choice))
        assert made.tool_choice == expected
        assert made.parallel_tool_calls

    def test_only_some_tools_can_be_allowed(self) -> None:
        allowed = {"mode": "required", "tools": [named("g")]}
        choice = {"type": "allowed_tools", "allowed_tools": allowed}
        made = item(chat(tools=[function("f"), function("g")], tool_choice=choice))
        assert [tool.name for tool in made.prompt.tools] == ["g"]
        assert made.tool_choice == "required"

    def test_without_tools_a_choice_means_nothing(self) -> None:
        assert chat(tools=[], tool_choice="none", parallel_tool_calls=False).ask() == chat().ask()

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"tool_choice": "required"}, "tool_choice"),
            ({"tool_choice": named("f")}, "tool_choice"),
            ({"tools": [function()], "tool_choice": named("g")}, "tool_choice"),
            ({"tools": [function()], "tool_choice": {"type": "function"}}, "tool_choice"),
            ({"tools": [function()], "tool_choice": "sometimes"}, "tool_choice"),
            ({"tools": [function()], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
            ({"tools": [function("auto")], "tool_choice": named("auto")}, "tool_choice"),
            ({"tools": [function(), function()]}, "tools.1.function.name"),
            ({"tools": [{"type": "function"}]}, "tools.0.function"),
            ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools.0.type"),
            (
                {"tools": [function(parameters={"type": "array"})]},
                "tools.0.function.parameters",
            ),
            (
                {"tools": [function(parameters={"title": "x" * 70_000})]},
                "tools.0.function.parameters",
            ),
            (
                {
                    "tools": [
                        function(f"f{i}", parameters={"title": "x" * 60_000}) for i in range(5)
                    ]
                },
                "tools.4.function.parameters",
            ),
            ({"tools": [function()], "functions": [{"name": "f"}]}, "tools"),
            ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call"),
            ({"functions": [{"name": "f"}], "function_call": "required"}, "function_call"),
            ({"function_call": {"name": "g"}}, "function_call"),
            ({"function_call": "x"}, "function_call"),
            ({"function_call": {"a": 1}}, "function_call"),
            ({"functions": [], "function_call": "required"}, "function_call"),
        ],
    )
    def test_mistakes_are_named(self, fields: dict[str, object], param: str) -> None:
        assert refused(fields).param == param

    @pytest.mark.parametrize(
        ("fields", "path"),
        [
            ({"tools": [function("a b")]}, "tools.0.function.name"),
            ({"tools": [function("x" * 65)]}, "tools.0.function.name"),
            ({"tools": [function("")]}, "tools.0.function.name"),
            ({"tools": [function(parameters=[])]}, "tools.0.function.parameters"),
            ({"tools": [function(strict="yes")]}, "tools.0.function.strict"),
            ({"tools": function()}, "tools"),
            ({"tools": [function(f"f{i}") for i in range(129)]}, "tools"),
            ({"tool_choice": 5}, "tool_choice"),
            ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
            (
                {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
                "messages.0.tool_calls.0.id",
            ),
            (
                {"messages": [{"role": "assistant", "tool_calls": [call(arguments={})]}]},  # type: ignore[arg-type]
                "messages.0.tool_calls.0.function.arguments",
            ),
        ],
    )
    def test_wrong_types_are_named(self, fields: dict[str, object], path: str) -> None:
        with pytest.raises(ValidationError) as refusal:
            chat(**fields)
        assert {".".join(map(str, error["loc"])) for error in refusal.value.errors()} == {path}


class TestMessages:
    def test_calls_and_their_answers(self) -> None:
        made = said(
            {"role": "assistant", "content": None, "tool_calls": [call("c1"), call("c2", "g")]},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "2"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
        )
        assert made == (
            Message(
                role="assistant",
                content="",
                tool_calls=(
                    ToolCall(call_id="c1", name="f", arguments="{}"),
                    ToolCall(call_id="c2", name="g", arguments="{}"),
                ),
            ),
            Message(role="tool", content="2", tool_call_id="c2"),
            Message(role="tool", content="1", tool_call_id="c1"),
        )

    def test_the_older_form_of_calls(self) -> None:
        first, second = said(
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "1"},
        )
        (made,) = first.tool_calls
        assert (made.name, second.role, second.name) == ("f", "tool", "f")
        assert made.call_id == second.tool_call_id

    @pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
    def test_reasoning_of_earlier_turns(self, name: str) -> None:
        (made,) = said({"role": "assistant", "content": "a", name: "since b"})
        assert (made.content, made.reasoning) == ("a", "since b")

    def test_a_refusal_is_what_was_said(self) -> None:
        part = {"type": "refusal", "refusal": "no"}
        turns = said(
            {"role": "assistant", "content": None, "refusal": "no"},
            {"role": "assistant", "content": [part]},
        )
        assert [turn.content for turn in turns] == ["no", "no"]

    @pytest.mark.parametrize(
        ("turn", "field"),
        [
            ({"role": "assistant"}, "content"),
            ({"role": "assistant", "content": None, "tool_calls": []}, "content"),
            ({"role": "user", "content": "a", "tool_calls": [call()]}, "tool_calls"),
            ({"role": "tool", "content": "a"}, "tool_call_id"),
            ({"role": "tool", "content": "a", "tool_call_id": "c9"}, "tool_call_id"),
            ({"role": "function", "content": "a", "name": "f"}, "role"),
            ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "tool_calls.0.function"),
            (
                {
                    "role": "assistant",
                    "tool_calls": [call()],
                    "function_call": {"name": "f", "arguments": ""},
                },
                "function_call",
            ),
        ],
    )
    def test_mistakes_are_named(self, turn: dict[str, object], field: str) -> None:
        error = refused({"messages": [USER, turn]})
        assert type(error) is InvalidRequest
        assert error.param == f"messages.1.{field}"

    def test_other_calls_than_of_functions_are_refused(self) -> None:
        turn = {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}
        error = refused({"messages": [turn]})
        assert isinstance(error, UnsupportedParameter)
        assert error.param == "messages.0.tool_calls.0.type"


class TestTemplateOptions:
    def test_effort_and_variables(self) -> None:
        options = {"enable_thinking": False}
        made = item(chat(reasoning_effort="low", chat_template_kwargs=options))
        assert made.prompt.template_options == {
            "reasoning_effort": "low",
            "enable_thinking": False,
        }

    def test_variables_are_bounded(self) -> None:
        error = refused({"chat_template_kwargs": {"a": "x" * 20_000}})
        assert error.param == "chat_template_kwargs"

    def test_an_adapter_is_passed_on(self) -> None:
        assert item(chat(adapter="formal")).adapter == "formal"


USAGE = TokenUsage(prompt_tokens=3, completion_tokens=9, reasoning_tokens=2)
STEPS = (
    TextDelta(text="", reasoning="hm"),
    TextDelta(text="", reasoning="m"),
    TextDelta(text="I "),
    TextDelta(text="look", tool_calls=(ToolCallDelta(index=0, call_id="c0", name="f"),)),
    TextDelta(text="", tool_calls=(ToolCallDelta(index=0, arguments='{"a'),)),
    TextDelta(
        text="",
        tool_calls=(
            ToolCallDelta(index=0, arguments='": 1}'),
            ToolCallDelta(index=1, call_id="c1", name="g", arguments="{}"),
        ),
    ),
    TextDelta(text="", finish_reason="tool_calls", usage=USAGE),
)


def outputs(steps: Sequence[TextDelta]) -> list[ItemEvent]:
    return [Output(0, step) for step in steps]


def bodied(exchange: Exchange, steps: Sequence[TextDelta]) -> dict[str, object]:
    body = rendered(exchange.body(HEADING, outputs(steps), Work())).content
    OpenAiChat.model_validate_json(body, strict=True)
    (choice,) = json.loads(body)["choices"]
    assert isinstance(choice, dict)
    return choice


def streamed(exchange: Exchange, steps: Sequence[TextDelta]) -> list[dict[str, object]]:
    writer = exchange.stream(HEADING)
    written = [json.loads(e.data) for out in outputs(steps) for e in writer.write([out])]
    return [chunk["choices"][0] for chunk in written]


class TestAnswers:
    def test_a_body_to_the_letter(self) -> None:
        choice = bodied(chat(tools=[function()]), STEPS)
        assert choice == {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "I look",
                "refusal": None,
                "reasoning_content": "hmm",
                "tool_calls": [
                    {
                        "id": "c0",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a": 1}'},
                    },
                    {"id": "c1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }

    def test_nothing_said_is_null(self) -> None:
        message = bodied(chat(tools=[function()]), [STEPS[3], STEPS[6]])["message"]
        assert isinstance(message, dict)
        assert message["content"] == "look"
        begun = TextDelta(text="", tool_calls=STEPS[3].tool_calls)
        message = bodied(chat(tools=[function()]), [begun, STEPS[6]])["message"]
        assert isinstance(message, dict)
        assert message["content"] is None
        assert "reasoning_content" not in message

    def test_reasoning_is_counted(self) -> None:
        body = chat().body(HEADING, outputs(STEPS), Work())
        usage = json.loads(rendered(body).content)["usage"]
        assert usage["completion_tokens_details"] == {"reasoning_tokens": 2}

    def test_the_older_form(self) -> None:
        exchange = chat(functions=[{"name": "f"}])
        assert item(exchange).parallel_tool_calls is False
        steps = [STEPS[3], STEPS[4], TextDelta(text="", finish_reason="tool_calls", usage=USAGE)]
        choice = bodied(exchange, steps)
        assert choice["finish_reason"] == "function_call"
        assert choice["message"] == {
            "role": "assistant",
            "content": "look",
            "refusal": None,
            "function_call": {"name": "f", "arguments": '{"a'},
        }
        choices = streamed(exchange, steps)
        assert [choice["delta"] for choice in choices] == [
            {
                "role": "assistant",
                "content": "look",
                "refusal": None,
                "function_call": {"name": "f", "arguments": ""},
            },
            {"function_call": {"arguments": '{"a'}},
            {},
        ]
        assert choices[-1]["finish_reason"] == "function_call"

    def test_a_stream_to_the_letter(self) -> None:
        choices = streamed(chat(tools=[function()], stream=True), STEPS)
        assert [choice["delta"] for choice in choices] == [
            {"role": "assistant", "content": None, "refusal": None, "reasoning_content": "hm"},
            {"reasoning_content": "m"},
            {"content": "I "},
            {
                "content": "look",
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "c0",
                        "type": "function",
                        "function": {"name": "f", "arguments": ""},
                    }
                ],
            },
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]},
            {
                "tool_calls": [
                    {"index": 0, "function": {"arguments": '": 1}'}},
                    {
                        "index": 1,
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "g", "arguments": "{}"},
                    },
                ]
            },
            {},
        ]
        assert choices[-1]["finish_reason"] == "tool_calls"

    def test_their_accumulator_finds_what_the_body_says(self) -> None:
        exchange = chat(tools=[function()], stream=True)
        state = ChatCompletionStreamState()
        writer = exchange.stream(HEADING)
        for out in outputs(STEPS):
            for event in writer.write([out]):
                state.handle_chunk(OpenAiChunk.model_validate_json(event.data))
        found = state.current_completion_snapshot.choices[0].message
        assert found.content == "I look"
        assert found.model_extra == {"reasoning_content": "hmm"}
        calls = found.tool_calls or []
        assert [(each.id, each.function.name, each.function.arguments) for each in calls] == [
            ("c0", "f", '{"a": 1}'),
            ("c1", "g", "{}"),
        ]


def test_a_function_without_parameters_has_none_in_responses_either() -> None:
    body = {"model": "m", "input": "hi", "tools": [{"type": "function", "name": "now"}]}
    (tool,) = item(routes[2].read(Incoming(body=json.dumps(body).encode()))).prompt.tools
    assert tool.parameters == EMPTY
