"""One call through either client, against a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import httpx2
import pytest
import stamina
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

from headpond_workloads.client import AsyncClient, Client
from headpond_workloads.generation.params import ChatParams

Handler = Callable[[httpx2.Request], httpx2.Response]


@pytest.fixture
def ask() -> ChatParams:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def whole(kind: str, ask: ChatParams) -> Callable[..., str | None]:
    """Ask for a whole answer and return its text."""

    def run(server: Handler, **options: object) -> str | None:
        with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
            client = Client(base_url="http://server", http_client=http, **options)  # type: ignore[arg-type]
            return client.chat.completions.create(**ask).choices[0].message.content

    async def arun(server: Handler, **options: object) -> str | None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
            client = AsyncClient(base_url="http://server", http_client=http, **options)  # type: ignore[arg-type]
            return (await client.chat.completions.create(**ask)).choices[0].message.content

    return run if kind == "sync" else lambda server, **opts: asyncio.run(arun(server, **opts))


@pytest.fixture
def texts(kind: str, ask: ChatParams) -> Callable[..., list[str | None]]:
    """Ask for a stream and return the texts of its chunks."""

    def run(server: Handler, **options: object) -> list[str | None]:
        with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
            client = Client(base_url="http://server", http_client=http, **options)  # type: ignore[arg-type]
            with client.chat.completions.create(stream=True, **ask) as stream:
                return [part.choices[0].delta.content for part in stream]

    async def arun(server: Handler, **options: object) -> list[str | None]:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
            client = AsyncClient(base_url="http://server", http_client=http, **options)  # type: ignore[arg-type]
            async with await client.chat.completions.create(stream=True, **ask) as stream:
                return [part.choices[0].delta.content async for part in stream]

    return run if kind == "sync" else lambda server, **opts: asyncio.run(arun(server, **opts))


@pytest.fixture
def waits() -> Iterator[list[float]]:
    """The waits before retries, in seconds."""
    seen: list[float] = []

    def note(details: RetryDetails) -> None:
        seen.append(details.wait_for)

    set_on_retry_hooks([note])
    yield seen
    set_on_retry_hooks(None)


@pytest.fixture
def no_waiting() -> Iterator[None]:
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


@pytest.fixture
def answer() -> Callable[..., httpx2.Response]:
    """Make a whole answer; `_` stands for `-` in headers."""

    def make(status: int = 200, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if status != 200:
            error = {"message": "no", "type": "server_error", "param": None, "code": None}
            return httpx2.Response(status, json={"error": error}, headers=named)
        message = {"role": "assistant", "content": "hey"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return httpx2.Response(200, json={**body, "choices": [choice]}, headers=named)

    return make


@pytest.fixture
def chunk() -> Callable[[str], str]:
    """Make the event of one chunk."""

    def make(text: str) -> str:
        return (
            'data: {"id":"1","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"'
            + text
            + '"}}]}\n\n'
        )

    return make
