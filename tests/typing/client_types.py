"""What type checkers make of the client; checked by mypy, never run."""

from __future__ import annotations

from typing import assert_type

from headpond import AsyncClient, Client
from headpond.client.catalogue import Workload
from headpond.client.stream import AsyncStream, Stream
from headpond.models_wire import Model, ModelList
from headpond_workloads.generation.schema_chat import ChatCompletion, ChatCompletionChunk
from headpond_workloads.generation.schema_completions import Completion


def sync_calls(client: Client, streaming: bool) -> None:
    chat = client.chat.completions
    messages = [{"role": "user", "content": "hi"}]
    assert_type(
        chat.create(model="m", messages=[{"role": "user", "content": "hi"}]), ChatCompletion
    )
    assert_type(
        chat.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=False),
        ChatCompletion,
    )
    assert_type(
        chat.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True),
        Stream[ChatCompletionChunk],
    )
    assert_type(
        chat.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=streaming),
        ChatCompletion | Stream[ChatCompletionChunk],
    )
    assert_type(client.completions.create(model="m", prompt=["a"], n=2), Completion)
    assert_type(client.completions.create(model="m", prompt=[1], stream=True), Stream[Completion])
    assert_type(client.models.list(), ModelList)
    assert_type(client.models.retrieve("m"), Model)
    assert_type(client.workloads(), tuple[Workload, ...])
    assert_type(client.with_options(deadline_s=1.0), Client)
    with (
        client as entered,
        chat.create(
            model="m",
            messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            stream=True,
        ) as stream,
    ):
        assert_type(entered, Client)
        for chunk in stream:
            assert_type(chunk, ChatCompletionChunk)
            assert_type(chunk.choices[0].delta.content, str | None)

    chat.create(model="m")  # type: ignore[call-overload]
    chat.create(model="m", messages=messages)  # type: ignore[arg-type]
    chat.create(model="m", messages=[], temperature="hot")  # type: ignore[call-overload]
    chat.create(model="m", messages=[], no_such_field=1)  # type: ignore[call-overload]
    client.completions.create(model="m", prompt=5)  # type: ignore[call-overload]


async def async_calls(client: AsyncClient) -> None:
    chat = client.chat.completions
    assert_type(await chat.create(model="m", messages=[]), ChatCompletion)
    assert_type(
        await chat.create(model="m", messages=[], stream=True), AsyncStream[ChatCompletionChunk]
    )
    assert_type(await client.completions.create(model="m", prompt="a"), Completion)
    assert_type(await client.models.list(), ModelList)
    assert_type(await client.workloads(), tuple[Workload, ...])
    async with client, await client.completions.create(model="m", prompt="", stream=True) as stream:
        async for chunk in stream:
            assert_type(chunk, Completion)
