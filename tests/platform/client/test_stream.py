"""Streams that end, that break, and that are left; over real connections where it matters."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import httpx2
import pytest

from headpond.client.errors import ConnectionTimedOut, StreamTruncated
from headpond.client.stream import AsyncStream
from headpond.testing.http_script import ScriptedBody, ScriptedServer, sse_response
from headpond_workloads.client import AsyncClient, Client
from headpond_workloads.generation.params import ChatParams
from headpond_workloads.generation.schema_chat import ChatCompletionChunk

Texts = Callable[..., list[str | None]]
Chunk = Callable[[str], str]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = "data: [DONE]\n\n"
WHOLE = {
    "id": "resp",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "output": [],
    "parallel_tool_calls": True,
    "reasoning": {},
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
}


def event(name: str, **fields: object) -> str:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n"


class TestTruncation:
    @pytest.mark.parametrize("tail", ["", ": comment\n\n", "data: [DONE]", "data: {"])
    def test_a_stream_without_its_end_raises(self, texts: Texts, chunk: Chunk, tail: str) -> None:
        with pytest.raises(StreamTruncated):
            texts(ScriptedServer(sse_response(ScriptedBody(chunk("a"), tail))))

    def test_silence_amid_a_stream(self, texts: Texts, chunk: Chunk) -> None:
        body = ScriptedBody(chunk("a"), httpx2.ReadTimeout("x"))
        with pytest.raises(ConnectionTimedOut):
            texts(ScriptedServer(sse_response(body)))

    def test_reading_on_after_close_is_no_end(self, ask: ChatParams, chunk: Chunk) -> None:
        server = ScriptedServer(sse_response(ScriptedBody(chunk("a"), DONE)))
        with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
            stream = Client(http_client=http).chat.completions.create(stream=True, **ask)
            stream.close()
            for _ in range(2):
                with pytest.raises(StreamTruncated):
                    next(stream)

    async def test_reading_on_after_async_close_is_no_end(
        self, ask: ChatParams, chunk: Chunk
    ) -> None:
        server = ScriptedServer(sse_response(ScriptedBody(chunk("a"), DONE)))
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
            stream = await AsyncClient(http_client=http).chat.completions.create(stream=True, **ask)
            await stream.close()
            with pytest.raises(StreamTruncated):
                await anext(stream)


class TestStreamsWithoutDone:
    """Streams whose own last event says that they are over."""

    GROWN: ClassVar = event("response.output_text.delta", item_id="m", output_index=0, delta="a")
    OVER: ClassVar = event("response.completed", response=WHOLE)

    def test_the_last_event_ends_them(self) -> None:
        server = ScriptedServer(sse_response(ScriptedBody(self.GROWN, self.OVER)))
        with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
            stream = Client(http_client=http).responses.create(model="m", input="a", stream=True)
            assert [each.root.type for each in stream][-1] == "response.completed"

    async def test_the_last_event_ends_async_ones(self) -> None:
        server = ScriptedServer(sse_response(ScriptedBody(self.GROWN, self.OVER)))
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
            client = AsyncClient(http_client=http)
            stream = await client.responses.create(model="m", input="a", stream=True)
            assert [each.root.type async for each in stream][-1] == "response.completed"

    def test_without_it_they_are_truncated(self) -> None:
        server = ScriptedServer(sse_response(ScriptedBody(self.GROWN)))
        with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
            stream = Client(http_client=http).responses.create(model="m", input="a", stream=True)
            with pytest.raises(StreamTruncated):
                list(stream)


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Run `serve` on each connection in turn; yield the base URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(10)
                    serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def read_request(connection: socket.socket) -> bool:
    """Read one request; False when there is no other."""
    got = b""
    while b"\r\n\r\n" not in got:
        part = connection.recv(65536)
        if not part:
            return False
        got += part
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return True


def framed(text: str) -> bytes:
    return f"{len(text):x}\r\n{text}\r\n".encode()


class OneChunkThenSilence:
    """Serves the first chunk of a stream, then waits for the client to go."""

    def __init__(self, chunk: str) -> None:
        self._chunk = chunk
        self.gone = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(HEAD + framed(self._chunk))
        if connection.recv(1) == b"":
            self.gone.set()


class TestConnections:
    def test_leaving_a_stream_closes_its_connection(self, ask: ChatParams, chunk: Chunk) -> None:
        serve = OneChunkThenSilence(chunk("a"))
        with listening(serve) as url, Client(base_url=url) as client:
            with client.chat.completions.create(stream=True, **ask) as stream:
                assert next(stream).choices[0].delta.content == "a"
            assert serve.gone.wait(5)

    async def test_leaving_an_async_stream_closes_its_connection(
        self, ask: ChatParams, chunk: Chunk
    ) -> None:
        serve = OneChunkThenSilence(chunk("a"))
        with listening(serve) as url:
            async with AsyncClient(base_url=url) as client:
                async with await client.chat.completions.create(stream=True, **ask) as stream:
                    assert (await anext(stream)).choices[0].delta.content == "a"
                assert await asyncio.to_thread(serve.gone.wait, 5)

    async def test_another_task_can_close_a_stream(self, ask: ChatParams, chunk: Chunk) -> None:
        serve, begun = OneChunkThenSilence(chunk("a")), asyncio.Event()

        async def read(stream: AsyncStream[ChatCompletionChunk]) -> None:
            async for _ in stream:
                begun.set()

        with listening(serve) as url:
            async with AsyncClient(base_url=url) as client:
                stream = await client.chat.completions.create(stream=True, **ask)
                task = asyncio.create_task(read(stream))
                await begun.wait()
                await asyncio.sleep(0)  # the reader is waiting for the next chunk again
                await stream.close()
                with pytest.raises(StreamTruncated):
                    await task
                assert await asyncio.to_thread(serve.gone.wait, 5)

    async def test_a_cancelled_task_closes_its_connection(
        self, ask: ChatParams, chunk: Chunk
    ) -> None:
        serve, begun = OneChunkThenSilence(chunk("a")), asyncio.Event()

        async def read(client: AsyncClient) -> None:
            async for _ in await client.chat.completions.create(stream=True, **ask):
                begun.set()

        with listening(serve) as url:
            async with AsyncClient(base_url=url) as client:
                task = asyncio.create_task(read(client))
                await begun.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await asyncio.to_thread(serve.gone.wait, 5)

    def test_a_killed_server_is_no_end_of_a_stream(self, ask: ChatParams, chunk: Chunk) -> None:
        def serve(connection: socket.socket) -> None:
            read_request(connection)
            connection.sendall(HEAD + framed(chunk("a")))

        with listening(serve) as url, Client(base_url=url) as client:
            stream = client.chat.completions.create(stream=True, **ask)
            assert next(stream).choices[0].delta.content == "a"
            with pytest.raises(StreamTruncated):
                next(stream)

    async def test_async_streams_that_ended_reuse_their_connection(
        self, ask: ChatParams, chunk: Chunk
    ) -> None:
        connections = 0

        def serve(connection: socket.socket) -> None:
            nonlocal connections
            connections += 1
            while read_request(connection):
                connection.sendall(HEAD + framed(chunk("a")) + framed(DONE) + framed(": t\n\n"))
                connection.sendall(b"0\r\n\r\n")

        with listening(serve) as url:
            async with AsyncClient(base_url=url) as client:
                for _ in range(3):
                    stream = await client.chat.completions.create(stream=True, **ask)
                    assert len([part async for part in stream]) == 1
        assert connections == 1
