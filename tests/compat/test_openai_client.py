"""OpenAI's client and our own against the HTTP layer, over a real connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence

import openai
import pytest
import uvicorn
from openai.types.chat import ChatCompletionUserMessageParam

from headpond.call import Accepted, Done, Ended, ModelCard, Output
from headpond.client.errors import ConnectionFailed
from headpond.errors import EngineFailed, ModelNotFound, UnsupportedParameter
from headpond.http.app import build_app
from headpond.settings import Settings
from headpond.testing.scripted import ScriptedBackend, Step
from headpond.units import Work
from headpond_workloads.client import Client
from headpond_workloads.generation.items import TextDelta, TokenUsage
from headpond_workloads.generation.record import record

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


def test_our_catalogue(ours: Client) -> None:
    (model,) = ours.models.list().data
    assert ours.models.retrieve("chat") == model
    assert (model.workload, model.bundles, model.limits) == ("generation", (BUNDLE,), {"tokens": 8})
    assert [workload.name for workload in ours.workloads()] == ["generation"]


def test_our_errors(ours: Client, backend: ScriptedBackend) -> None:
    with pytest.raises(ModelNotFound):
        ours.models.retrieve("no/ne")
    with pytest.raises(UnsupportedParameter) as refusal:
        ours.completions.create(model="chat", prompt="a", best_of=2)
    assert refusal.value.param == "best_of"
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
