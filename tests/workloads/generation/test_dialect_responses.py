"""The responses dialect, read by the vendor's own types and its accumulator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response as OpenAiResponse
from openai.types.responses import ResponseStreamEvent as OpenAiEvent
from pydantic import TypeAdapter

from headpond.call import Failed, Output
from headpond.dialect import Exchange, Heading, Incoming, ItemEvent, SseEvent, rendered
from headpond.errors import EngineFailed
from headpond.units import Work
from headpond_workloads.generation.dialects import routes
from headpond_workloads.generation.items import (
    ChosenToken,
    FinishReason,
    GenerationItem,
    TextDelta,
    TokenLogprob,
    TokenUsage,
    ToolCallDelta,
)
from headpond_workloads.generation.schema_responses import Response
from headpond_workloads.generation.schema_responses_events import ResponseEvent

RESPONSES = routes[2]
HEADING = Heading(request_id="r-1", created_s=1_700_000_000, model="chat", fingerprint="m@1+abc")
USAGE = TokenUsage(prompt_tokens=3, completion_tokens=5, cached_tokens=2, reasoning_tokens=1)
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
EVENTS: TypeAdapter[OpenAiEvent] = TypeAdapter(OpenAiEvent)


def ask(**fields: object) -> Exchange:
    return RESPONSES.read(
        Incoming(body=json.dumps({"model": "m", "input": "hi", **fields}).encode())
    )


def item(exchange: Exchange) -> GenerationItem:
    (only,) = exchange.ask().items
    assert isinstance(only, GenerationItem)
    return only


def ends(reason: FinishReason = "stop") -> TextDelta:
    return TextDelta(text="", finish_reason=reason, usage=USAGE)


def calls(*deltas: ToolCallDelta) -> TextDelta:
    return TextDelta(text="", tool_calls=deltas)


def bodied(exchange: Exchange, steps: Sequence[TextDelta]) -> dict[str, Any]:
    exchange.ask()
    events: list[ItemEvent] = [Output(0, step) for step in steps]
    body = rendered(exchange.body(HEADING, events, Work())).content.decode()
    OpenAiResponse.model_validate_json(body, strict=True)
    assert Response.model_validate_json(body).model_dump_json() == body
    found = json.loads(body)
    assert isinstance(found, dict)
    return found


def streamed(exchange: Exchange, steps: Sequence[TextDelta]) -> list[dict[str, Any]]:
    """Return the data of every event, all of which are right for the vendor's types and ours."""
    exchange.ask()
    writer = exchange.stream(HEADING)
    written: list[SseEvent] = [sse for step in steps for sse in writer.write([Output(0, step)])]
    written += writer.close(Work())
    found = [json.loads(sse.data) for sse in written]
    assert [sse.name for sse in written] == [event["type"] for event in found]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    for sse in written:
        EVENTS.validate_json(sse.data, strict=True)
        ResponseEvent.model_validate_json(sse.data)
    return found


def types(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(event["type"]).removeprefix("response.") for event in events]


HELLO = (TextDelta(text="Hel"), TextDelta(text="lo"), ends())
WEATHER = (
    TextDelta(text="", reasoning="h"),
    TextDelta(text="", reasoning="m"),
    TextDelta(text="I look."),
    calls(ToolCallDelta(index=0, call_id="c0", name="f")),
    calls(ToolCallDelta(index=0, arguments='{"a"')),
    calls(
        ToolCallDelta(index=0, arguments=":1}"),
        ToolCallDelta(index=1, call_id="c1", name="g", arguments="{}"),
    ),
    ends("tool_calls"),
)


class TestBody:
    def test_to_the_letter(self) -> None:
        assert bodied(ask(metadata={"a": "b"}), HELLO) == {
            "id": "resp_r-1",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "completed",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "max_tool_calls": None,
            "metadata": {"a": "b"},
            "model": "chat",
            "output": [
                {
                    "id": "msg_r-1_0",
                    "type": "message",
                    "status": "completed",
                    "role": "assistant",
                    "content": [
                        {
                            "type": "output_text",
                            "text": "Hello",
                            "annotations": [],
                            "logprobs": [],
                        }
                    ],
                }
            ],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "prompt_cache_key": None,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": None,
            "service_tier": "default",
            "store": False,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": 0,
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
                "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 1},
                "total_tokens": 8,
            },
            "user": None,
        }

    def test_reasoning_text_and_calls(self) -> None:
        thought, message, *called = bodied(ask(tools=[FUNCTION]), WEATHER)["output"]
        assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
        assert message["content"][0]["text"] == "I look."
        assert called == [
            {
                "id": "fc_r-1_2",
                "type": "function_call",
                "status": "completed",
                "call_id": "c0",
                "name": "f",
                "arguments": '{"a":1}',
            },
            {
                "id": "fc_r-1_3",
                "type": "function_call",
                "status": "completed",
                "call_id": "c1",
                "name": "g",
                "arguments": "{}",
            },
        ]

    def test_what_was_asked_is_said_again(self) -> None:
        form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": False}
        choice = {"type": "function", "name": "f"}
        found = bodied(
            ask(text={"format": form}, tools=[FUNCTION], tool_choice=choice, store=True), HELLO
        )
        assert found["text"] == {"format": form}
        assert found["tools"] == [{**FUNCTION, "description": None, "strict": True}]
        assert found["tool_choice"] == choice
        assert found["store"] is False

    def test_a_limit_makes_it_incomplete(self) -> None:
        found = bodied(ask(), [TextDelta(text="He"), ends("length")])
        assert found["status"] == "incomplete"
        assert found["incomplete_details"] == {"reason": "max_output_tokens"}
        assert found["output"][0]["status"] == "incomplete"

    def test_an_empty_answer_is_an_empty_message(self) -> None:
        (message,) = bodied(ask(), [ends()])["output"]
        assert message["content"][0]["text"] == ""

    def test_logprobs_belong_to_the_text(self) -> None:
        def token(raw: bytes) -> ChosenToken:
            return ChosenToken(TokenLogprob("?", 1, -0.5, raw), ())

        euro = "€".encode()
        steps = [
            TextDelta(text="", reasoning="hm", logprobs=(token(b"hm"),)),
            TextDelta(text="", logprobs=(token(euro[:2]),)),
            TextDelta(text="€", logprobs=(token(euro[2:]),)),
            TextDelta(text="", logprobs=(token(b"!"),)),
            ends(),
        ]
        exchange = ask(include=["message.output_text.logprobs"])
        part = bodied(exchange, steps)["output"][1]["content"][0]
        assert b"".join(bytes(each["bytes"]) for each in part["logprobs"]) == euro + b"!"
        events = streamed(exchange, steps)
        grown = [event for event in events if event["type"] == "response.output_text.delta"]
        raw = [bytes(each["bytes"]) for event in grown for each in event["logprobs"]]
        assert b"".join(raw) == euro + b"!"

    def test_an_output_can_be_the_next_input(self) -> None:
        output = bodied(ask(), WEATHER)["output"]
        answers = [
            {"type": "function_call_output", "call_id": f"c{at}", "output": "x"} for at in range(2)
        ]
        made = item(ask(input=[{"role": "user", "content": "hi"}, *output, *answers]))
        assert made.prompt.messages is not None
        turn = made.prompt.messages[1]
        assert (turn.reasoning, turn.content) == ("hm", "I look.")
        assert [call.arguments for call in turn.tool_calls] == ['{"a":1}', "{}"]


class TestStream:
    def test_to_the_letter(self) -> None:
        events = streamed(ask(stream=True), HELLO)
        assert types(events) == [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
        created, _, added, part, delta, _, done, *_ = events
        assert (created["response"]["status"], created["response"]["usage"]) == (
            "in_progress",
            None,
        )
        assert created["response"]["output"] == []
        assert added["item"] == {
            "id": "msg_r-1_0",
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        assert part["part"]["text"] == ""
        assert delta == {
            "sequence_number": 4,
            "type": "response.output_text.delta",
            "item_id": "msg_r-1_0",
            "output_index": 0,
            "content_index": 0,
            "delta": "Hel",
            "logprobs": [],
        }
        assert done["text"] == "Hello"
        assert events[-1]["response"] == bodied(ask(), HELLO)

    def test_calls_and_reasoning(self) -> None:
        events = streamed(ask(stream=True), WEATHER)
        assert types(events)[2:] == [
            "output_item.added",
            "content_part.added",
            "reasoning_text.delta",
            "reasoning_text.delta",
            "reasoning_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ]
        begun = [event["item"] for event in events if event["type"] == "response.output_item.added"]
        assert [each.get("arguments") for each in begun] == [None, None, "", ""]
        assert [each["status"] for each in begun] == ["in_progress"] * 4
        indexes = [event["output_index"] for event in events if "output_index" in event]
        assert indexes == sorted(indexes)

    def test_a_limit_ends_it_incomplete(self) -> None:
        events = streamed(ask(stream=True), [TextDelta(text="He"), ends("length")])
        assert types(events)[-2:] == ["output_item.done", "incomplete"]
        assert events[-2]["item"]["status"] == "incomplete"

    def test_a_failed_item_fails_it(self) -> None:
        exchange = ask(stream=True)
        with pytest.raises(EngineFailed, match="NaN"):
            exchange.stream(HEADING).write([Failed(0, EngineFailed("NaN"))])
        with pytest.raises(EngineFailed, match="NaN"):
            exchange.body(HEADING, [Failed(0, EngineFailed("NaN"))], Work())


pieces = st.text(max_size=4)
steps = st.one_of(
    st.builds(TextDelta, text=pieces),
    st.builds(TextDelta, text=st.just(""), reasoning=pieces),
    st.builds(TextDelta, text=pieces, reasoning=pieces),
)


@st.composite
def answers(draw: st.DrawFn) -> list[TextDelta]:
    """Draw thoughts and text, and then calls."""
    given_steps = draw(st.lists(steps, max_size=6))
    for at in range(draw(st.integers(0, 2))):
        given_steps.append(calls(ToolCallDelta(index=at, call_id=f"c{at}", name="f")))
        given_steps += [
            calls(ToolCallDelta(index=at, arguments=piece))
            for piece in draw(st.lists(pieces, max_size=3))
        ]
    return [*given_steps, ends(draw(st.sampled_from(["stop", "length", "tool_calls"])))]


@given(told=answers())
def test_a_stream_comes_to_its_body(told: list[TextDelta]) -> None:
    events = streamed(ask(stream=True), told)
    whole = bodied(ask(), told)
    assert events[-1]["response"] == whole
    state: ResponseStreamState[None] = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(EVENTS.validate_python(event))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == whole["output"]
    if whole["status"] == "completed":
        assert state._completed_response is not None
        assert state._completed_response.output_text == "".join(step.text for step in told)
