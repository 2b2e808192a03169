"""OpenAI's client and our own against the HTTP layer, over a real connection."""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Literal

import openai
import pytest
import uvicorn
from openai.types.chat import (
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
    ChatCompletionUserMessageParam,
)
from openai.types.responses import FunctionToolParam
from pydantic import BaseModel

from exchanges import MODEL, app_over, scripted, serving
from headpond.call import Accepted, Call, Done, Ended, ModelCard, Output
from headpond.client.errors import ConnectionFailed
from headpond.errors import (
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    ModelNotFound,
    UnsupportedParameter,
)
from headpond.http.app import build_app
from headpond.settings import Settings
from headpond.testing.scripted import ScriptedBackend, Step
from headpond.units import Work
from headpond_workloads.client import AsyncClient, Client
from headpond_workloads.embedding.items import Embedding, EmbedItem, Truncation
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.generation.items import (
    Constraint,
    FinishReason,
    GenerationItem,
    TextDelta,
    Tokens,
    TokenUsage,
    ToolCallDelta,
)
from headpond_workloads.generation.params import MessageParam, ToolParam
from headpond_workloads.generation.record import record
from headpond_workloads.reranking.items import Score
from headpond_workloads.reranking.record import record as reranking

BUNDLE = "small@1+0123456789ab"
WORK = Work(input_tokens=3, output_tokens=2)
USAGE = TokenUsage(prompt_tokens=3, completion_tokens=2)
ASK: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hi"}]
HELLO: Sequence[Step] = (
    [Output(0, TextDelta(text="Hel"))],
    [Output(0, TextDelta(text="lo"))],
    [Output(0, TextDelta(text="", finish_reason="stop", usage=USAGE)), Done(0, WORK)],
    [Ended(WORK)],
)
CALLS = (
    TextDelta(text="", tool_calls=(ToolCallDelta(index=0, call_id="c0", name="Weather"),)),
    TextDelta(text="", tool_calls=(ToolCallDelta(index=0, arguments='{"city":"Rome",'),)),
    TextDelta(text="", tool_calls=(ToolCallDelta(index=0, arguments='"degrees":30}'),)),
)
FOUND = Tokens(token_ids=(5, 7), pieces=("a", "b"), text="ab", context_tokens=64)
VECTOR = [0.5, -0.25, 2.0**-7]
TEXT = Embedding(vectors=struct.pack("<3f", *VECTOR), dimensions=3, tokens=4)
TOKENS: Sequence[Step] = ([Output(0, FOUND), Done(0, Work())], [Ended(Work())])


def answer(*deltas: TextDelta, reason: FinishReason = "stop") -> Sequence[Step]:
    last = TextDelta(text="", finish_reason=reason, usage=USAGE)
    return (
        *([Output(0, delta)] for delta in deltas),
        [Output(0, last), Done(0, WORK)],
        [Ended(WORK)],
    )


def constraint_of(call: Call) -> Constraint | None:
    (item,) = call.items
    assert isinstance(item, GenerationItem)
    return item.constraint


@pytest.fixture
def backend() -> ScriptedBackend:
    card = ModelCard(
        name="chat", workload="generation", bundles=(BUNDLE,), created_s=5, limits={"tokens": 8}
    )
    accepted = Accepted(bundle=BUNDLE, model="chat", work=WORK)
    return ScriptedBackend(accepted=accepted, cards=[card], steps=HELLO)


@pytest.fixture
def url(backend: ScriptedBackend) -> Iterator[str]:
    app = build_app([record], backend, Settings())
    config = uvicorn.Config(app, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def theirs(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def ours(url: str) -> Iterator[Client]:
    with Client(base_url=url, max_retries=0) as client:
        yield client


def test_their_chat(theirs: openai.OpenAI) -> None:
    whole = theirs.chat.completions.create(model="chat", messages=ASK)
    assert (whole.choices[0].message.content, whole.system_fingerprint) == ("Hello", BUNDLE)
    with theirs.chat.completions.stream(model="chat", messages=ASK) as stream:
        assert stream.get_final_completion().choices[0].message.content == "Hello"


def test_their_usage_of_a_stream(theirs: openai.OpenAI) -> None:
    chunks = list(
        theirs.chat.completions.create(
            model="chat", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
    )
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 5


def test_their_completions_and_models(theirs: openai.OpenAI) -> None:
    assert theirs.completions.create(model="chat", prompt="a").choices[0].text == "Hello"
    assert [model.id for model in theirs.models.list()] == ["chat"]


def test_their_errors(theirs: openai.OpenAI, backend: ScriptedBackend) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        theirs.chat.completions.create(model="chat", messages=ASK, temperature=5, stream=True)
    assert (refusal.value.param, refusal.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.NotFoundError) as missing:
        theirs.completions.create(model="none", prompt="a")
    assert missing.value.code == "model_not_found"
    backend.steps = (HELLO[0], EngineFailed("broke"))
    with pytest.raises(openai.APIError, match="broke"):
        list(theirs.chat.completions.create(model="chat", messages=ASK, stream=True))


def test_our_chat(ours: Client) -> None:
    whole = ours.chat.completions.create(model="chat", messages=[{"role": "user", "content": "hi"}])
    assert (whole.choices[0].message.content, whole.usage and whole.usage.total_tokens) == (
        "Hello",
        5,
    )
    with ours.completions.create(model="chat", prompt="a", stream=True) as stream:
        assert "".join(chunk.choices[0].text for chunk in stream) == "Hello"
        assert stream.request_id


class Weather(BaseModel):
    """What a model is asked to fill in."""

    city: str
    degrees: int


def test_their_structured_outputs(theirs: openai.OpenAI, backend: ScriptedBackend) -> None:
    backend.steps = answer(TextDelta(text='{"city":"Rome",'), TextDelta(text='"degrees":30}'))
    found = theirs.chat.completions.parse(model="chat", messages=ASK, response_format=Weather)
    assert found.choices[0].message.parsed == Weather(city="Rome", degrees=30)
    text = theirs.responses.parse(model="chat", input="hi", text_format=Weather)
    assert text.output_parsed == Weather(city="Rome", degrees=30)
    first, second = (constraint_of(call) for call in backend.calls)
    assert first is not None
    assert second is not None
    assert first.source == second.source
    assert json.loads(first.source)["required"] == ["city", "degrees"]


def test_their_tools(theirs: openai.OpenAI, backend: ScriptedBackend) -> None:
    tool = openai.pydantic_function_tool(Weather)
    backend.steps = answer(*CALLS, reason="tool_calls")
    whole = theirs.chat.completions.create(model="chat", messages=ASK, tools=[tool])
    (called,) = whole.choices[0].message.tool_calls or []
    assert isinstance(called, ChatCompletionMessageFunctionToolCall)
    assert (called.function.name, json.loads(called.function.arguments)["degrees"]) == (
        "Weather",
        30,
    )
    with theirs.chat.completions.stream(model="chat", messages=ASK, tools=[tool]) as stream:
        events = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0].message
    assert [event.parsed_arguments for event in events] == [Weather(city="Rome", degrees=30)]
    assert final.tool_calls is not None
    history: list[ChatCompletionMessageParam] = [
        *ASK,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": called.id,
                    "type": "function",
                    "function": {"name": "Weather", "arguments": called.function.arguments},
                }
            ],
        },
        {"role": "tool", "tool_call_id": called.id, "content": "hot"},
    ]
    backend.steps = HELLO
    assert theirs.chat.completions.create(model="chat", messages=history, tools=[tool]).choices


def test_their_responses(theirs: openai.OpenAI, backend: ScriptedBackend) -> None:
    whole = theirs.responses.create(model="chat", input="hi", store=False)
    assert (whole.output_text, whole.status) == ("Hello", "completed")
    assert whole.usage is not None
    assert whole.usage.total_tokens == 5
    with theirs.responses.stream(model="chat", input="hi") as stream:
        said = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert stream.get_final_response().output_text == "Hello"
    assert said == ["Hel", "lo"]
    backend.steps = answer(*CALLS, reason="tool_calls")
    tool = openai.pydantic_function_tool(Weather)["function"]
    param: FunctionToolParam = {
        "type": "function",
        "name": tool["name"],
        "parameters": tool.get("parameters"),
        "strict": True,
    }
    with theirs.responses.stream(model="chat", input="hi", tools=[param]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[-2:] == ["response.output_item.done", "response.completed"]
    (called,) = final.output
    assert called.type == "function_call"
    assert json.loads(called.arguments)["degrees"] == 30


def test_their_errors_of_responses(theirs: openai.OpenAI, backend: ScriptedBackend) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        theirs.responses.create(model="chat", input="hi", previous_response_id="resp_1")
    assert refusal.value.param == "previous_response_id"
    backend.steps = (HELLO[0], EngineFailed("broke"))
    with pytest.raises(openai.APIError, match="broke"):
        list(theirs.responses.create(model="chat", input="hi", stream=True))


def test_our_responses(ours: Client, backend: ScriptedBackend) -> None:
    assert ours.responses.create(model="chat", input="hi").output_text == "Hello"
    with ours.responses.create(model="chat", input="hi", stream=True) as stream:
        events = [event.root for event in stream]
    said = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert said == ["Hel", "lo"]
    assert events[-1].type == "response.completed"
    whole = ours.responses.create(model="chat", input="hi")
    ours.responses.create(model="chat", input=[{"role": "user", "content": "hi"}, *whole.output])
    (item,) = backend.calls[-1].items
    assert isinstance(item, GenerationItem)
    assert item.prompt.messages is not None
    assert [turn.content for turn in item.prompt.messages] == ["hi", "Hello"]
    backend.steps = (HELLO[0], EngineFailed("broke"))
    with pytest.raises(EngineFailed, match="broke"):
        list(ours.responses.create(model="chat", input="hi", stream=True))


async def test_our_async_responses_and_tokens(url: str, backend: ScriptedBackend) -> None:
    async with AsyncClient(base_url=url, max_retries=0) as client:
        stream = await client.responses.create(model="chat", input="hi", stream=True)
        assert [event.root.type async for event in stream][-1] == "response.completed"
        backend.steps = TOKENS
        found = await client.tokenize(model="chat", prompt="ab")
        assert (found.tokens, found.count, found.max_model_len) == ([5, 7], 2, 64)
        assert (await client.detokenize(model="chat", tokens=[5, 7])).prompt == "ab"


def test_our_tokens(ours: Client, backend: ScriptedBackend) -> None:
    backend.steps = TOKENS
    messages: list[MessageParam] = [{"role": "user", "content": "ab"}]
    found = ours.tokenize(model="chat", messages=messages, return_token_strs=True)
    assert found.token_strs == ["a", "b"]
    assert ours.detokenize(model="chat", tokens=[5, 7]).prompt == "ab"
    with pytest.raises(InvalidRequest) as refusal:
        ours.tokenize(model="chat")
    assert refusal.value.param == "prompt"


def test_our_tools(ours: Client, backend: ScriptedBackend) -> None:
    backend.steps = answer(*CALLS, reason="tool_calls")
    tool: ToolParam = {"type": "function", "function": {"name": "Weather"}}
    whole = ours.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": "hi"}],
        tools=[tool],
        tool_choice="required",
    )
    (called,) = whole.choices[0].message.tool_calls or []
    assert called.function.name == "Weather"


def test_our_catalogue(ours: Client) -> None:
    (model,) = ours.models.list().data
    assert ours.models.retrieve("chat") == model
    assert (model.workload, model.bundles, model.limits) == ("generation", (BUNDLE,), {"tokens": 8})
    assert [workload.name for workload in ours.workloads()] == ["generation"]


def test_our_errors(ours: Client, backend: ScriptedBackend) -> None:
    with pytest.raises(ModelNotFound):
        ours.models.retrieve("no/ne")
    with pytest.raises(UnsupportedParameter) as refusal:
        ours.completions.create(model="chat", prompt="a", extra_body={"suffix": "z"})
    assert refusal.value.param == "suffix"
    backend.steps = (HELLO[0], EngineFailed("broke"))
    stream = ours.completions.create(model="chat", prompt="a", stream=True)
    assert next(stream).choices[0].text == "Hel"
    with pytest.raises(EngineFailed, match="broke"):
        next(stream)


def test_our_word_on_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        Client(base_url=f"http://127.0.0.1:{port}", max_retries=0) as client,
        pytest.raises(ConnectionFailed),
    ):
        client.models.list()


@pytest.mark.parametrize("encoding", [openai.omit, "float", "base64"])
def test_their_embeddings(encoding: Literal["float", "base64"] | openai.Omit) -> None:
    backend = scripted(embedding, TEXT, TEXT)
    with (
        serving(app_over(embedding, backend)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        found = client.embeddings.create(
            model=MODEL, input=["a", "b"], encoding_format=encoding, dimensions=3
        )
    if encoding == "base64":
        assert str(found.data[1].embedding) == base64.b64encode(TEXT.vectors).decode()
    else:
        assert [list(each.embedding) for each in found.data] == [VECTOR, VECTOR]
    assert [each.index for each in found.data] == [0, 1]
    assert found.usage.total_tokens == 8
    (item, _) = backend.calls[0].items
    assert item == EmbedItem(
        text="a",
        truncation=Truncation.NONE,
        dimensions=3,
        param="input.0",
        max_tokens_param="truncate_prompt_tokens",
    )


def test_their_errors_of_embeddings() -> None:
    backend = scripted(embedding, TEXT)
    with (
        serving(app_over(embedding, backend)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.BadRequestError) as empty:
            client.embeddings.create(model=MODEL, input=["a", ""])
        assert empty.value.param == "input.1"
        backend.refusal = ContextLengthExceeded("300 tokens > 256", param="input.0")
        with pytest.raises(openai.BadRequestError) as long:
            client.embeddings.create(model=MODEL, input=[[1] * 300])
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "input.0")


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_our_embeddings(encoding: Literal["float", "base64"] | None) -> None:
    with (
        serving(app_over(embedding, scripted(embedding, TEXT))) as url,
        Client(base_url=url, max_retries=0) as client,
    ):
        found = client.embeddings.create(model=MODEL, input="a", encoding_format=encoding)
        with pytest.raises(InvalidRequest) as refusal:
            client.embeddings.create(model=MODEL, input=[])
    assert [each.vector for each in found.data] == [VECTOR]
    assert refusal.value.param == "input"


async def test_our_async_embeddings() -> None:
    with serving(app_over(embedding, scripted(embedding, TEXT))) as url:
        async with AsyncClient(base_url=url, max_retries=0) as client:
            found = await client.embeddings.create(model=MODEL, input=[1, 2])
    assert found.data[0].vector == VECTOR


async def test_our_rerank() -> None:
    scores = [Score(logits=(0.0,), scores=(value,), tokens=9) for value in (0.25, 0.75)]
    with serving(app_over(reranking, scripted(reranking, *scores))) as url:
        with Client(base_url=url, max_retries=0) as client:
            found = client.rerank(model=MODEL, query="q", documents=["a", {"text": "b"}], top_n=1)
            with pytest.raises(InvalidRequest) as refusal:
                client.rerank(model=MODEL, query="q", documents=["a"], top_n=0)
        async with AsyncClient(base_url=url, max_retries=0) as client:
            both = await client.rerank(
                model=MODEL, query="q", documents=["a", "b"], return_documents=False
            )
    (best,) = found.results
    assert best.document is not None
    assert (best.index, best.relevance_score, best.document.text) == (1, 0.75, "b")
    assert refusal.value.param == "top_n"
    assert [(each.index, each.document) for each in both.results] == [(1, None), (0, None)]
    assert both.usage.total_tokens == 18
