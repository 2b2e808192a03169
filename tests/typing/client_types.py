"""What type checkers make of the client; checked by mypy, never run."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from headpond import AsyncClient, Client
from headpond.client.catalogue import Workload
from headpond.client.page import Page
from headpond.client.stream import AsyncStream, Stream
from headpond.jobs_wire import Batch, BatchResult, FileObject
from headpond.models_wire import Model, ModelList
from headpond_workloads.diffusion.schema import PictureEvent, PictureList
from headpond_workloads.embedding.schema import EmbeddingList
from headpond_workloads.generation.schema_chat import ChatCompletion, ChatCompletionChunk
from headpond_workloads.generation.schema_completions import Completion
from headpond_workloads.generation.schema_responses import Response
from headpond_workloads.generation.schema_responses_events import ResponseEvent
from headpond_workloads.generation.schema_tokenize import Detokenization, Tokenization
from headpond_workloads.reranking.schema import Ranking
from headpond_workloads.speech.client_realtime_session import RealtimeSession
from headpond_workloads.speech.schema import (
    TranscriptEvent,
    Transcription,
    VerboseTranscription,
)
from headpond_workloads.speech.schema_realtime_events import TranscriptionCompleted


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
    assert_type(client.files.create(b"{}"), FileObject)
    assert_type(client.batches.create(input_file_id="f", endpoint="/v1/embeddings"), Batch)
    assert_type(list(client.batches.results("batch_1")), list[BatchResult])
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


def what_outputs_must_be(client: Client) -> None:
    schema = {"type": "object"}
    answer = client.chat.completions.create(
        model="m",
        messages=[
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "1"},
        ],
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
        reasoning_effort="low",
        chat_template_kwargs={"enable_thinking": False},
        guided_choice=["a", "b"],
        structured_outputs={"regex": "a+"},
        adapter="formal",
    )
    for call in answer.choices[0].message.tool_calls or []:
        assert_type(call.function.arguments, str)
    assert_type(answer.choices[0].message.reasoning_content, str | None)
    client.completions.create(model="m", prompt="a", echo=True, best_of=2, guided_regex="a")
    client.chat.completions.create(model="m", messages=[], tool_choice="some")  # type: ignore[call-overload]
    client.chat.completions.create(model="m", messages=[], n="2")  # type: ignore[call-overload]


def responses(client: Client, streaming: bool) -> None:
    create = client.responses.create
    whole = create(
        model="m",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
        ],
        instructions="be brief",
        text={"format": {"type": "json_schema", "name": "n", "schema": {}}},
        tools=[{"type": "function", "name": "f", "parameters": {}}],
        tool_choice={"type": "function", "name": "f"},
        reasoning={"effort": "high"},
    )
    assert_type(whole, Response)
    assert_type(whole.output_text, str)
    assert_type(create(model="m", input="a", stream=streaming), Response | Stream[ResponseEvent])
    with create(model="m", input="a", stream=True) as stream:
        for event in stream:
            if event.root.type == "response.output_text.delta":
                assert_type(event.root.delta, str)
    create(model="m", input=[{"role": "user", "content": "hi"}, *whole.output])
    create(model="m")  # type: ignore[call-overload]
    create(model="m", input=5)  # type: ignore[call-overload]


def tokens(client: Client) -> None:
    found = client.tokenize(model="m", prompt="a", return_token_strs=True)
    assert_type(found, Tokenization)
    assert_type(client.detokenize(model="m", tokens=found.tokens), Detokenization)
    client.tokenize(prompt="a")  # type: ignore[call-arg]


def embeddings(client: Client) -> None:
    found = client.embeddings.create(model="m", input=["a", "b"], encoding_format="base64")
    assert_type(found, EmbeddingList)
    assert_type(found.data[0].vector, list[float])
    client.embeddings.create(model="m", input=[[1, 2], [3]], dimensions=64)
    client.embeddings.create(model="m", input="a", extra_body={"new": 1})
    client.embeddings.create(model="m")  # type: ignore[call-arg]
    client.embeddings.create(model="m", input=5)  # type: ignore[arg-type]


def reranking(client: Client) -> None:
    found = client.rerank(model="m", query="q", documents=["a", {"text": "b"}], top_n=1)
    assert_type(found, Ranking)
    assert_type(found.results[0].relevance_score, float)
    client.rerank(model="m", query="q", documents=[{"title": "b"}], rank_fields=["title"])
    client.rerank(model="m", query="q", documents=["a"], extra_body={"new": 1})
    client.rerank(model="m", query="q", documents=[1])  # type: ignore[list-item]
    client.rerank(model="m", query="q")  # type: ignore[call-arg]


async def async_calls(client: AsyncClient) -> None:
    chat = client.chat.completions
    assert_type(await chat.create(model="m", messages=[]), ChatCompletion)
    assert_type(
        await chat.create(model="m", messages=[], stream=True), AsyncStream[ChatCompletionChunk]
    )
    assert_type(await client.completions.create(model="m", prompt="a"), Completion)
    assert_type(await client.models.list(), ModelList)
    assert_type(await client.workloads(), tuple[Workload, ...])
    assert_type(await client.responses.create(model="m", input="a"), Response)
    assert_type(
        await client.responses.create(model="m", input="a", stream=True),
        AsyncStream[ResponseEvent],
    )
    assert_type(await client.tokenize(model="m", prompt="a"), Tokenization)
    assert_type(await client.detokenize(model="m", tokens=[1]), Detokenization)
    assert_type(await client.embeddings.create(model="m", input="a"), EmbeddingList)
    assert_type(await client.rerank(model="m", query="q", documents=["a"]), Ranking)
    async with client, await client.completions.create(model="m", prompt="", stream=True) as stream:
        async for chunk in stream:
            assert_type(chunk, Completion)


def pictures(client: Client) -> None:
    images = client.images
    assert_type(images.generate(prompt="p", n=2, seed=7), PictureList)
    assert_type(images.generate(prompt="p", stream=True, progress=True), Stream[PictureEvent])
    assert_type(images.edit(prompt="p", image=b"i", strength=0.5), PictureList)
    assert_type(images.edit(prompt="p", image="i", stream=True), Stream[PictureEvent])
    images.generate(prompt="p", seed="7")  # type: ignore[call-overload]
    images.generate(prompt="p", partial_images=2)  # type: ignore[call-overload]
    images.edit(prompt="p")  # type: ignore[call-overload]


async def async_pictures(client: AsyncClient) -> None:
    images = client.images
    assert_type(await images.generate(prompt="p"), PictureList)
    assert_type(
        await images.edit(prompt="p", image=b"i", stream=True, partial_images=3),
        AsyncStream[PictureEvent],
    )


def options_of_a_call(client: Client) -> None:
    client.embeddings.create(model="m", input="a", deadline_s=1.5, max_retries=0)
    client.rerank(model="m", query="q", documents=["a"], extra_headers={"a": "b"}, timeout_s=None)
    client.tokenize(model="m", prompt="a", deadline_s=1)
    client.embeddings.create(model="m", input="a", deadline_s="soon")  # type: ignore[arg-type]
    client.chat.completions.create(model="m", messages=[], deadlines_s=1)  # type: ignore[call-overload]


def speech(client: Client, path: Path, samples: NDArray[np.float32]) -> None:
    create = client.transcriptions.create
    assert_type(create(model="m", file=path), Transcription)
    assert_type(create(model="m", file=(samples, 16_000), stream=True), Stream[TranscriptEvent])
    assert_type(
        create(model="m", file="a.wav", response_format="verbose_json"), VerboseTranscription
    )
    assert_type(create(model="m", file=b"", response_format="srt"), str)
    create(model="m", file=b"", response_format="diarized_json")  # type: ignore[call-overload]
    with client.realtime.connect(model="m", turn_detection=None) as session:
        assert_type(session, RealtimeSession)
        for event in session.listen([b""]):
            if isinstance(event, TranscriptionCompleted):
                assert_type(event.transcript, str)


def pages(client: Client) -> None:
    assert_type(client.files.list(), Page[FileObject])
    assert_type(list(client.batches.list(limit=2)), list[Batch])
    assert_type(
        list(client.batches.run(endpoint="/v1/embeddings", bodies=[{"model": "m"}])),
        list[BatchResult],
    )


def arrays_and_pictures(client: Client, image: Image, pixels: NDArray[np.uint8]) -> None:
    assert_type(client.embeddings.create(model="m", input="a").numpy(), NDArray[np.float32])
    client.classifications.create(model="m", image=[image, pixels, b"", Path("a.png")])
    edited = client.images.edit(prompt="p", image=image, mask=pixels, seed=None)
    assert_type(edited.data[0].pillow(), Image)
    client.classifications.create(model="m", image=5)  # type: ignore[arg-type]
