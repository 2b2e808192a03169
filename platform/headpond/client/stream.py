"""Streams of typed chunks over server-sent events, each sync and async.

A stream is complete only when the server said so (`[DONE]`, or an event that is its last);
all else raises. Leaving its `with` block, or `close`, closes the connection, and the server
then stops the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from headpond.client.errors import (
    ConnectionTimedOut,
    ResponseInvalid,
    StreamTruncated,
    error_in,
)
from headpond.errors import HeadpondError

Chunk = TypeVar("Chunk", bound=BaseModel)

DONE = "[DONE]"
MAX_EVENT_BYTES = 64 * 2**20
DRAIN_S = 0.1
"""How long the rest of a body may take after `[DONE]`, so that its connection is reused."""


class Stream(Generic[Chunk]):
    """The chunks of one answer, as they come."""

    def __init__(
        self,
        response: httpx2.Response,
        chunk: type[Chunk],
        is_last: Callable[[Chunk], bool] | None = None,
    ) -> None:
        """Read chunks of type `chunk` from an open response, up to one that `is_last`."""
        self._response = response
        self._is_last = is_last
        self._complete = False
        self._chunks = self._read(chunk)

    @property
    def request_id(self) -> str | None:
        """The server's name for this call."""
        return self._response.headers.get("x-request-id")

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        try:
            return next(self._chunks)
        except StopIteration:
            if self._complete:
                raise
        raise StreamTruncated

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the call; cancels it when it is not over. Safe to call twice."""
        self._response.close()

    def _read(self, chunk: type[Chunk]) -> Generator[Chunk]:
        try:
            for event in httpx2.EventSource(self._response, MAX_EVENT_BYTES):
                if event.data == DONE:
                    self._complete = True
                    return
                parsed = _parse(event.data, chunk, self._response)
                self._complete = self._is_last is not None and self._is_last(parsed)
                yield parsed
                if self._complete:
                    return
        except (httpx2.RequestError, httpx2.StreamError) as error:
            raise _broken(error) from error
        finally:
            self._response.close()


class AsyncStream(Generic[Chunk]):
    """The chunks of one answer, as they come."""

    def __init__(
        self,
        response: httpx2.Response,
        chunk: type[Chunk],
        is_last: Callable[[Chunk], bool] | None = None,
    ) -> None:
        """Read chunks of type `chunk` from an open response, up to one that `is_last`."""
        self._response = response
        self._is_last = is_last
        self._complete = False
        self._reading = False
        self._chunks = self._read(chunk)

    @property
    def request_id(self) -> str | None:
        """The server's name for this call."""
        return self._response.headers.get("x-request-id")

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        self._reading = True
        try:
            return await anext(self._chunks)
        except StopAsyncIteration:
            if self._complete:
                raise
        finally:
            self._reading = False
        raise StreamTruncated

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the call; cancels it when it is not over. Safe to call twice."""
        await self._response.aclose()
        if not self._reading:  # else its reader, another task, ends it
            await self._chunks.aclose()

    async def _read(self, chunk: type[Chunk]) -> AsyncGenerator[Chunk]:
        events = aiter(httpx2.EventSource(self._response, MAX_EVENT_BYTES))
        try:
            async for event in events:
                if event.data == DONE:
                    self._complete = True
                    await _drain(events)
                    return
                parsed = _parse(event.data, chunk, self._response)
                self._complete = self._is_last is not None and self._is_last(parsed)
                yield parsed
                if self._complete:
                    await _drain(events)
                    return
        except (httpx2.RequestError, httpx2.StreamError) as error:
            raise _broken(error) from error
        finally:
            await self._response.aclose()


async def _drain(events: AsyncIterator[httpx2.ServerSentEvent]) -> None:
    """Read what follows the end: a body read to its end leaves the connection usable."""
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in events:
                pass
    except (TimeoutError, httpx2.RequestError):
        return  # the answer was complete; only its connection is lost


def _parse(data: str, chunk: type[Chunk], response: httpx2.Response) -> Chunk:
    try:
        return chunk.model_validate_json(data)
    except ValidationError:
        # Not chained: pydantic repeats the data it could not read.
        error = error_in(data, response)
    raise error or ResponseInvalid("The stream holds an event that is none of the API's.")


def _broken(error: httpx2.RequestError | httpx2.StreamError) -> HeadpondError:
    if isinstance(error, httpx2.SSEError | httpx2.DecodingError):
        return ResponseInvalid("The answer is no stream of server-sent events.")
    if isinstance(error, httpx2.TimeoutException):
        return ConnectionTimedOut()
    return StreamTruncated()
