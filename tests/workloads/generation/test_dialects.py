"""What the dialects write, read by the vendor's own client types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types import Completion as OpenAiCompletion
from openai.types.chat import ChatCompletion as OpenAiChat
from openai.types.chat import ChatCompletionChunk as OpenAiChunk

from headpond.call import Done, Failed, Output
from headpond.dialect import Exchange, Heading, Incoming, ItemEvent, rendered
from headpond.errors import EngineFailed
from headpond.units import Work
from headpond_workloads.generation.dialects import routes
from headpond_workloads.generation.items import (
    ChosenToken,
    FinishReason,
    TextDelta,
    TokenLogprob,
    TokenUsage,
)
from headpond_workloads.generation.schema_chat import ChatCompletion, ChatCompletionChunk
from headpond_workloads.generation.schema_completions import Completion

CHAT, COMPLETIONS, *_ = routes
HEADING = Heading(request_id="r-1", created_s=1_700_000_000, model="chat", fingerprint="m@1+abc")
WORK = Work(output_tokens=1)
EURO = "€".encode()


def chat(**fields: object) -> Exchange:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    return CHAT.read(Incoming(body=json.dumps(body).encode()))


def completion(**fields: object) -> Exchange:
    return COMPLETIONS.read(
        Incoming(body=json.dumps({"model": "m", "prompt": "x", **fields}).encode())
    )


def token(raw: bytes, logprob: float = -0.5, top: Sequence[TokenLogprob] = ()) -> ChosenToken:
    text = raw.decode("utf-8", "replace")
    return ChosenToken(TokenLogprob(text, 1, logprob, raw), tuple(top))


def text(
    item: int, *deltas: str, reason: FinishReason = "stop", prompt_tokens: int = 3
) -> list[ItemEvent]:
    """Return the events of one item whose deltas are these, and which then ends."""
    usage = TokenUsage(prompt_tokens=prompt_tokens, completion_tokens=len(deltas), cached_tokens=2)
    events: list[ItemEvent] = [Output(item, TextDelta(text=delta)) for delta in deltas]
    events.append(Output(item, TextDelta(text="", finish_reason=reason, usage=usage)))
    return [*events, Done(item, WORK)]


def streamed(exchange: Exchange, events: Sequence[ItemEvent]) -> list[str]:
    """Return the data of every event, each engine step having given one event."""
    writer = exchange.stream(HEADING)
    written = [sse for event in events for sse in writer.write([event])]
    written += writer.close(WORK)
    assert all(sse.name is None and "\n" not in sse.data for sse in written)
    assert written[-1].data == "[DONE]"
    return [sse.data for sse in written[:-1]]


def bodied(exchange: Exchange, events: Sequence[ItemEvent]) -> str:
    return rendered(exchange.body(HEADING, events, WORK)).content.decode()


def openai_chat(body: str) -> OpenAiChat:
    return OpenAiChat.model_validate_json(body, strict=True)


class TestChatBody:
    def test_to_the_letter(self) -> None:
        body = bodied(chat(), text(0, "Hel", "lo"))
        assert json.loads(body) == {
            "id": "chatcmpl-r-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "chat",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hello", "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "total_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 0},
            },
            "system_fingerprint": "m@1+abc",
        }
        assert openai_chat(body).choices[0].message.content == "Hello"

    def test_choices_keep_their_items_and_share_the_prompt(self) -> None:
        events = [*text(1, "b", "c", reason="length"), *text(0, "a")]
        read = openai_chat(bodied(chat(n=2), events))
        assert [(c.index, c.message.content, c.finish_reason) for c in read.choices] == [
            (0, "a", "stop"),
            (1, "bc", "length"),
        ]
        assert read.usage is not None
        assert (read.usage.prompt_tokens, read.usage.completion_tokens) == (3, 3)

    def test_logprobs_carry_exact_bytes_and_finite_numbers(self) -> None:
        other = TokenLogprob("z", 9, float("-inf"), b"z")
        tokens = (token(EURO[:2], top=[other]), token(EURO[2:]))
        delta = TextDelta(text="€", logprobs=tokens, finish_reason="stop")
        read = openai_chat(bodied(chat(logprobs=True, top_logprobs=1), [Output(0, delta)]))
        logprobs = read.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        assert bytes(b for entry in logprobs.content for b in entry.bytes or []) == EURO
        assert [entry.logprob for entry in logprobs.content] == [-0.5, -0.5]
        assert [top.logprob for top in logprobs.content[0].top_logprobs] == [-9999.0]
        assert logprobs.content[1].top_logprobs == []

    def test_logprobs_of_no_tokens_are_an_empty_list(self) -> None:
        read = openai_chat(bodied(chat(logprobs=True), text(0)))
        assert read.choices[0].logprobs is not None
        assert read.choices[0].logprobs.content == []


class TestChatStream:
    def test_to_the_letter(self) -> None:
        head = {
            "id": "chatcmpl-r-1",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": "chat",
            "system_fingerprint": "m@1+abc",
        }

        def chunk(delta: dict[str, object], reason: str | None = None) -> dict[str, object]:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            return {**head, "choices": [choice]}

        chunks = [json.loads(data) for data in streamed(chat(stream=True), text(0, "Hel", "lo"))]
        assert chunks == [
            chunk({"role": "assistant", "content": "Hel", "refusal": None}),
            chunk({"content": "lo"}),
            chunk({}, "stop"),
        ]

    def test_usage_comes_once_and_is_null_before(self) -> None:
        exchange = chat(stream=True, stream_options={"include_usage": True}, n=2)
        chunks = [json.loads(d) for d in streamed(exchange, [*text(0, "a"), *text(1, "b", "c")])]
        assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["prompt_tokens"] == 3
        assert chunks[-1]["usage"]["completion_tokens"] == 3
        assert {(chunk["id"], chunk["created"]) for chunk in chunks} == {
            ("chatcmpl-r-1", 1_700_000_000)
        }

    def test_an_empty_answer_still_has_role_and_reason(self) -> None:
        chunks = [OpenAiChunk.model_validate_json(d) for d in streamed(chat(stream=True), text(0))]
        assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant", None]
        assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, "stop"]

    def test_choices_begin_in_order(self) -> None:
        events = [Output(2, TextDelta(text="c")), Output(0, TextDelta(text="a"))]
        chunks = [
            OpenAiChunk.model_validate_json(d) for d in streamed(chat(n=3, stream=True), events)
        ]
        assert [
            (c.choices[0].index, c.choices[0].delta.role, c.choices[0].delta.content)
            for c in chunks
        ] == [
            (0, "assistant", ""),
            (1, "assistant", ""),
            (2, "assistant", "c"),
            (0, None, "a"),
        ]

    def test_steps_that_add_nothing_write_nothing(self) -> None:
        assert streamed(chat(stream=True), [Output(0, TextDelta(text="", token_ids=(1,)))]) == []

    def test_held_back_text_still_gives_its_logprobs(self) -> None:
        events: list[ItemEvent] = [
            Output(0, TextDelta(text="", logprobs=(token(EURO[:2]),))),
            Output(0, TextDelta(text="", logprobs=(token(EURO[2:3]),))),
            Output(0, TextDelta(text="€", finish_reason="stop")),
        ]
        chunks = [json.loads(d) for d in streamed(chat(stream=True, logprobs=True), events)]
        raw = [bytes(entry["bytes"]) for c in chunks for entry in logprob_content(c)]
        assert b"".join(raw) == EURO
        assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "€"


def logprob_content(
    chunk: dict[str, list[dict[str, dict[str, list[dict[str, list[int]]]]]]],
) -> list[dict[str, list[int]]]:
    return (chunk["choices"][0]["logprobs"] or {"content": []})["content"]


class TestCompletionBody:
    def test_to_the_letter(self) -> None:
        body = bodied(completion(), text(0, "a", "b", reason="length"))
        assert json.loads(body) == {
            "id": "cmpl-r-1",
            "object": "text_completion",
            "created": 1_700_000_000,
            "model": "chat",
            "system_fingerprint": "m@1+abc",
            "choices": [{"index": 0, "text": "ab", "logprobs": None, "finish_reason": "length"}],
            "usage": {
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "total_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 0},
            },
        }

    def test_prompts_count_once_each(self) -> None:
        exchange = completion(prompt=["a", "b"], n=2)
        events = [e for i in range(4) for e in text(i, f"t{i}", prompt_tokens=10 + i // 2)]
        read = OpenAiCompletion.model_validate_json(bodied(exchange, events), strict=True)
        assert [choice.text for choice in read.choices] == ["t0", "t1", "t2", "t3"]
        assert read.usage is not None
        assert (read.usage.prompt_tokens, read.usage.completion_tokens) == (21, 4)

    def test_legacy_logprobs(self) -> None:
        likely = TokenLogprob("b", 2, -0.1, b"b")
        tokens = (token(b"a", -2.0, [likely]), token(EURO[:2]), token(EURO[2:]), token(b"!"))
        events = [Output(0, TextDelta(text="a€!", logprobs=tokens, finish_reason="stop"))]
        read = OpenAiCompletion.model_validate_json(bodied(completion(logprobs=1), events))
        logprobs = read.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.tokens == ["a", r"bytes:\xe2\x82", r"bytes:\xac", "!"]
        assert logprobs.token_logprobs == [-2.0, -0.5, -0.5, -0.5]
        assert logprobs.text_offset == [0, 1, 1, 2]
        assert logprobs.top_logprobs is not None
        assert logprobs.top_logprobs[0] == {"b": -0.1, "a": -2.0}

    def test_no_alternatives_without_asking(self) -> None:
        events = [Output(0, TextDelta(text="a", logprobs=(token(b"a"),), finish_reason="stop"))]
        read = OpenAiCompletion.model_validate_json(bodied(completion(logprobs=0), events))
        assert read.choices[0].logprobs is not None
        assert read.choices[0].logprobs.top_logprobs is None


class TestCompletionStream:
    def test_to_the_letter(self) -> None:
        exchange = completion(stream=True, stream_options={"include_usage": True})
        chunks = [json.loads(data) for data in streamed(exchange, text(0, "a"))]
        assert [chunk["choices"] for chunk in chunks] == [
            [{"index": 0, "text": "a", "logprobs": None, "finish_reason": None}],
            [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}],
            [],
        ]
        assert [chunk["usage"] is None for chunk in chunks] == [True, True, False]

    def test_offsets_go_on_from_chunk_to_chunk(self) -> None:
        events = [Output(0, TextDelta(text=t, logprobs=(token(t.encode()),))) for t in ("ab", "c")]
        chunks = [
            Completion.model_validate_json(data)
            for data in streamed(completion(stream=True, logprobs=0), events)
        ]
        offsets = [c.choices[0].logprobs.text_offset for c in chunks if c.choices[0].logprobs]
        assert offsets == [[0], [2]]


USED = TokenUsage(prompt_tokens=3, completion_tokens=1)


def logprobs_of(exchange: Exchange, events: Sequence[ItemEvent]) -> dict[str, object]:
    """Return the log-probabilities of an answer, or of the first chunk of a stream."""
    stream = exchange.ask().stream
    body = streamed(exchange, events)[0] if stream else bodied(exchange, events)
    found: dict[str, object] = json.loads(body)["choices"][0]["logprobs"]
    return found


def scored(raw: bytes, logprob: float | None, *top: TokenLogprob) -> ChosenToken:
    return ChosenToken(TokenLogprob(raw.decode(), raw[0], logprob, raw), tuple(top))


def test_log_probabilities_of_the_prompt_in_vllms_shape() -> None:
    other = TokenLogprob("z", 9, -0.25, b"z")
    b = TokenLogprob("b", 98, -1.5, b"b")
    prompt = (scored(b"a", None), scored(b"b", -1.5, other, b), scored(b"c", -7.0, other))
    end = TextDelta(text="!", logprobs=(token(b"!"),), finish_reason="stop", usage=USED)
    events: list[ItemEvent] = [
        Output(0, TextDelta(text="", logprobs=prompt, is_prompt=True)),
        Output(0, end),
    ]
    told = [
        None,
        {
            "98": {"logprob": -1.5, "rank": 2, "decoded_token": "b"},
            "9": {"logprob": -0.25, "rank": 1, "decoded_token": "z"},
        },
        {
            "99": {"logprob": -7.0, "rank": None, "decoded_token": "c"},
            "9": {"logprob": -0.25, "rank": 1, "decoded_token": "z"},
        },
    ]
    body = json.loads(bodied(chat(prompt_logprobs=2, logprobs=True), events))
    assert body["prompt_logprobs"] == told
    assert [each["token"] for each in body["choices"][0]["logprobs"]["content"]] == ["!"]
    body = json.loads(bodied(completion(prompt_logprobs=1, logprobs=1), events))
    shown = body["choices"][0]["prompt_logprobs"]
    assert list(shown[1]) == ["98", "9"]
    assert body["choices"][0]["logprobs"]["tokens"] == ["!"]
    plain = json.loads(bodied(completion(), events))
    assert "prompt_logprobs" not in plain["choices"][0]
    plain = json.loads(bodied(chat(), events))
    assert "prompt_logprobs" not in plain


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_can_read_as_their_ids(stream: bool) -> None:
    alternative = TokenLogprob("z", 9, -0.25, b"z")
    said = ChosenToken(TokenLogprob("a", 97, -0.5, b"a"), (alternative,))
    events: list[ItemEvent] = [
        Output(0, TextDelta(text="a", logprobs=(said,), finish_reason="stop", usage=USED))
    ]
    asked = {"return_tokens_as_token_ids": True, "stream": stream}
    told = logprobs_of(chat(logprobs=True, top_logprobs=1, **asked), events)
    top = {"token": "token_id:9", "logprob": -0.25, "bytes": [122]}
    entry = {"token": "token_id:97", "logprob": -0.5, "bytes": [97], "top_logprobs": [top]}
    assert told["content"] == [entry]
    columns = logprobs_of(completion(logprobs=1, **asked), events)
    assert columns["tokens"] == ["token_id:97"]
    assert columns["top_logprobs"] == [{"token_id:9": -0.25, "token_id:97": -0.5}]


@pytest.mark.parametrize("exchange", [chat(n=2, stream=True), completion(n=2, stream=True)])
def test_a_failed_choice_fails_the_answer(exchange: Exchange) -> None:
    events = [*text(0, "a"), Failed(1, EngineFailed("NaN"))]
    with pytest.raises(EngineFailed, match="NaN"):
        exchange.body(HEADING, events, WORK)
    with pytest.raises(EngineFailed, match="NaN"):
        exchange.stream(HEADING).write(events)


@pytest.mark.parametrize("exchange", [chat(stream=True), completion(stream=True)])
def test_no_two_choices_of_words_are_confused_with_the_template(exchange: Exchange) -> None:
    odd = Heading(request_id='"\0"', created_s=1, model='m"\0', fingerprint="f\0")
    writer = exchange.stream(odd)
    said = '\0"\\ \u2028 € 😀 </script>\n'
    first, second = writer.write([Output(0, TextDelta(text=said)), Output(0, TextDelta(text=said))])
    for sse in (first, second):
        data = json.loads(sse.data)
        (choice,) = data["choices"]
        assert (choice["delta"]["content"] if "delta" in choice else choice["text"]) == said
        assert data["model"] == 'm"\0'


@dataclass(frozen=True)
class Told:
    """One item: its text in pieces, and how it ends."""

    pieces: tuple[str, ...]
    reason: FinishReason


told = st.builds(
    Told,
    pieces=st.lists(st.text(max_size=5), max_size=6).map(tuple),
    reason=st.sampled_from(["stop", "length"]),
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[Told], list[ItemEvent]]:
    """Draw items and one interleaving of their events."""
    items = draw(st.lists(told, min_size=1, max_size=4))
    waiting = [text(i, *item.pieces, reason=item.reason) for i, item in enumerate(items)]
    events: list[ItemEvent] = []
    while any(waiting):
        queue = draw(st.sampled_from([queue for queue in waiting if queue]))
        events.append(queue.pop(0))
    return items, events


@given(call=calls(), usage=st.booleans())
def test_a_streamed_chat_is_the_whole_one(
    call: tuple[list[Told], list[ItemEvent]], usage: bool
) -> None:
    items, events = call
    options = {"include_usage": usage}
    exchange = chat(n=len(items), stream=True, stream_options=options)
    state = ChatCompletionStreamState()
    reasons: list[str] = []
    for data in streamed(exchange, events):
        typed = ChatCompletionChunk.model_validate_json(data)
        assert typed.model_dump_json(exclude_unset=True) == data
        reasons += [c.finish_reason for c in typed.choices if c.finish_reason]
        state.handle_chunk(OpenAiChunk.model_validate_json(data))
    whole = openai_chat(bodied(exchange, events))
    final = state.current_completion_snapshot
    assert [c.message.content for c in final.choices] == [c.message.content for c in whole.choices]
    assert [c.message.content for c in whole.choices] == ["".join(i.pieces) for i in items]
    assert [c.finish_reason for c in whole.choices] == [item.reason for item in items]
    assert sorted(reasons) == sorted(item.reason for item in items)
    assert final.usage == (whole.usage if usage else None)


@given(call=calls())
def test_a_streamed_completion_is_the_whole_one(call: tuple[list[Told], list[ItemEvent]]) -> None:
    items, events = call
    exchange = completion(n=len(items), stream=True)
    texts = [""] * len(items)
    reasons: list[str] = []
    for data in streamed(exchange, events):
        typed = Completion.model_validate_json(data)
        assert typed.model_dump_json(exclude_unset=True) == data
        for choice in typed.choices:
            texts[choice.index] += choice.text
            reasons += [choice.finish_reason] if choice.finish_reason else []
    whole = Completion.model_validate_json(bodied(exchange, events))
    assert texts == [choice.text for choice in whole.choices]
    assert texts == ["".join(item.pieces) for item in items]
    assert sorted(reasons) == sorted(item.reason for item in items)


def test_bodies_are_read_back_as_they_were_written() -> None:
    body = bodied(chat(logprobs=True), text(0, "a"))
    assert ChatCompletion.model_validate_json(body).model_dump_json() == body
