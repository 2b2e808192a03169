"""What a response can be asked for, refused, and made of its input."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from headpond.dialect import Exchange, Incoming
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.http.errors import invalid_request
from headpond_workloads.generation.dialects import routes
from headpond_workloads.generation.items import (
    GenerationItem,
    Message,
    Sampling,
    Tool,
    ToolCall,
)

RESPONSES = routes[2]
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


def ask(**fields: object) -> Exchange:
    return RESPONSES.read(
        Incoming(body=json.dumps({"model": "m", "input": "hi", **fields}).encode())
    )


def item(exchange: Exchange) -> GenerationItem:
    (only,) = exchange.ask().items
    assert isinstance(only, GenerationItem)
    return only


class TestRequest:
    def test_defaults(self) -> None:
        made = item(ask())
        assert made.prompt.messages == (Message(role="user", content="hi"),)
        assert (made.prompt.param, made.max_tokens_param) == ("input", "max_output_tokens")
        assert made.max_output_tokens is None
        assert made.sampling == Sampling()
        assert made.logprobs is None

    def test_fields_are_passed_on(self) -> None:
        exchange = ask(
            instructions="be brief",
            max_output_tokens=9,
            temperature=0,
            top_p=0.5,
            seed=3,
            stop="END",
            tools=[FUNCTION],
            tool_choice={"type": "function", "name": "f"},
            parallel_tool_calls=False,
            reasoning={"effort": "low", "summary": "auto"},
            include=["message.output_text.logprobs"],
            top_logprobs=2,
            adapter="formal",
            stream=True,
        )
        made = item(exchange)
        assert exchange.ask().stream
        assert made.prompt.messages == (
            Message(role="system", content="be brief"),
            Message(role="user", content="hi"),
        )
        assert made.prompt.tools == (
            Tool(name="f", parameters={"type": "object", "properties": {}}, strict=True),
        )
        assert made.prompt.template_options == {"reasoning_effort": "low"}
        assert made.sampling == Sampling(temperature=0.0, top_p=0.5, seed=3)
        assert (made.max_output_tokens, made.stop, made.logprobs) == (9, ("END",), 2)
        assert (made.tool_choice, made.parallel_tool_calls) == ("f", False)
        assert made.adapter == "formal"

    def test_only_some_tools_can_be_allowed(self) -> None:
        choice = {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "g"}],
        }
        made = item(ask(tools=[FUNCTION, {**FUNCTION, "name": "g"}], tool_choice=choice))
        assert [tool.name for tool in made.prompt.tools] == ["g"]
        assert made.tool_choice == "required"

    def test_null_and_harmless_fields_change_nothing(self) -> None:
        first = ("instructions", "tools", "text", "reasoning", "previous_response_id", "store")
        second = ("stream", "metadata", "temperature", "conversation", "truncation", "include")
        assert ask(**dict.fromkeys((*first, *second))).ask() == ask().ask()
        harmless = {
            "store": True,
            "metadata": {"a": "b"},
            "truncation": "disabled",
            "background": False,
            "include": ["reasoning.encrypted_content"],
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "prompt_cache_key": "k",
            "service_tier": "auto",
            "no_such_field": 1,
        }
        assert ask(**harmless).ask() == ask().ask()

    def test_items_become_turns(self) -> None:
        made = item(
            ask(
                input=[
                    {"role": "developer", "content": "be brief"},
                    {
                        "type": "message",
                        "role": "user",
                        "content": [
                            {"type": "input_text", "text": "a"},
                            {"type": "input_text", "text": "b"},
                        ],
                    },
                    {
                        "type": "reasoning",
                        "id": "rs",
                        "summary": [],
                        "content": [{"type": "reasoning_text", "text": "hm"}],
                    },
                    {
                        "type": "message",
                        "id": "msg",
                        "status": "completed",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "I look", "annotations": []}],
                    },
                    {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"},
                    {"type": "function_call", "call_id": "c1", "name": "g", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c1", "output": "1"},
                    {
                        "type": "function_call_output",
                        "call_id": "c0",
                        "output": [{"type": "input_text", "text": "0"}],
                    },
                    {"role": "assistant", "content": "done"},
                    {"role": "assistant", "content": "really"},
                ]
            )
        )
        assert made.prompt.messages == (
            Message(role="system", content="be brief"),
            Message(role="user", content="ab"),
            Message(
                role="assistant",
                content="I look",
                reasoning="hm",
                tool_calls=(
                    ToolCall(call_id="c0", name="f", arguments="{}"),
                    ToolCall(call_id="c1", name="g", arguments="{}"),
                ),
            ),
            Message(role="tool", content="1", tool_call_id="c1"),
            Message(role="tool", content="0", tool_call_id="c0"),
            Message(role="assistant", content="done"),
            Message(role="assistant", content="really"),
        )

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"input": [{"content": "a"}]}, "input.0.role"),
            ({"input": [{"role": "user"}]}, "input.0.content"),
            (
                {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
                "input.0.content.0.text",
            ),
            ({"input": [{"type": "function_call", "name": "f"}]}, "input.0.call_id"),
            ({"input": [{"type": "function_call", "call_id": "c"}]}, "input.0.name"),
            (
                {"input": [{"type": "function_call", "call_id": "c", "name": "f"}]},
                "input.0.arguments",
            ),
            (
                {"input": [{"type": "function_call_output", "call_id": "c", "output": "a"}]},
                "input.0.call_id",
            ),
            ({"tools": [{"type": "function"}]}, "tools.0.name"),
            ({"tools": [FUNCTION, FUNCTION]}, "tools.1.name"),
            (
                {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}},
                "tool_choice",
            ),
            ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
        ],
    )
    def test_mistakes_are_named(self, fields: dict[str, object], param: str) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            ask(**fields).ask()
        assert type(refusal.value) is InvalidRequest
        assert refusal.value.param == param

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"previous_response_id": "resp_1"}, "previous_response_id"),
            ({"conversation": "conv_1"}, "conversation"),
            ({"background": True}, "background"),
            ({"prompt": {"id": "p"}}, "prompt"),
            ({"truncation": "auto"}, "truncation"),
            ({"text": {"verbosity": "high"}}, "text.verbosity"),
            ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
            ({"input": [{"type": "item_reference", "id": "a"}]}, "input.0.type"),
            (
                {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
                "input.0.content.0",
            ),
            ({"conversation": {}}, "conversation"),
            ({"prompt": {}}, "prompt"),
            ({"max_tool_calls": 0}, "max_tool_calls"),
            ({"include": ["message.output_text.logprobs", "zork"]}, "include.1"),
            ({"prompt_logprobs": 1}, "prompt_logprobs"),
            ({"return_tokens_as_token_ids": True}, "return_tokens_as_token_ids"),
            ({"use_beam_search": True}, "use_beam_search"),
        ],
    )
    def test_what_is_not_done_is_named(self, fields: dict[str, object], param: str) -> None:
        with pytest.raises(UnsupportedParameter) as refusal:
            ask(**fields).ask()
        assert refusal.value.param == param

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"input": None}, "input"),
            ({"input": []}, "input"),
            ({"input": 5}, "input"),
            ({"input": [5] * 8000}, "input.0"),
            ({"input": [5] * 8193}, "input"),
            ({"input": [{"role": "robot", "content": "a"}]}, "input.0.role"),
            ({"input": [{"role": "user", "content": 5}]}, "input.0.content"),
            ({"max_output_tokens": 0}, "max_output_tokens"),
            ({"instructions": ["a"]}, "instructions"),
            ({"text": "json"}, "text"),
            ({"tools": 0}, "tools"),
            ({"reasoning": {"effort": "some"}}, "reasoning.effort"),
            ({"store": 0}, "store"),
            ({"metadata": {"a": 1}}, "metadata.a"),
            ({"previous_response_id": 0}, "previous_response_id"),
            ({"max_tool_calls": "1"}, "max_tool_calls"),
            ({"include": "zork"}, "include"),
            ({"prompt": "p"}, "prompt"),
        ],
    )
    def test_wrong_types_are_named(self, fields: dict[str, object], param: str) -> None:
        body = json.dumps({"model": "m", "input": "hi", **fields}).encode()
        with pytest.raises(ValidationError) as refusal:
            RESPONSES.read(Incoming(body=body))
        assert invalid_request(refusal.value, body).param == param

    @pytest.mark.parametrize(
        ("field", "value", "instead"),
        [
            ("max_tokens", 5, "max_output_tokens"),
            ("max_completion_tokens", 5, "max_output_tokens"),
            ("n_predict", 5, "max_output_tokens"),
            ("response_format", {"type": "json_object"}, "text.format"),
            ("reasoning_effort", "low", "reasoning.effort"),
            ("messages", [{"role": "user", "content": "hi"}], "input"),
            ("functions", [{"name": "f"}], "tools"),
            ("n", 2, None),
            ("best_of", 2, None),
            ("echo", True, None),
            ("suffix", "z", None),
            ("logprobs", True, None),
            ("logprobs", 0, None),
            ("documents", [{"text": "a"}], None),
            ("add_generation_prompt", False, None),
            ("continue_final_message", True, None),
        ],
    )
    def test_what_other_routes_have_is_named(
        self, field: str, value: object, instead: str | None
    ) -> None:
        with pytest.raises(UnsupportedParameter) as refusal:
            ask(**{field: value}).ask()
        assert refusal.value.param == field
        hint = "" if instead is None else f"; use {instead}"
        assert refusal.value.message == f"{field} is not supported{hint}"
