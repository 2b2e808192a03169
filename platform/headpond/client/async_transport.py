"""The async transport: as the sync one, with awaits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import httpx2
from pydantic import BaseModel
from stamina import AsyncRetryingCaller

from headpond.client.attempts import Attempts
from headpond.client.config import LIMITS, ClientConfig
from headpond.client.errors import error_of
from headpond.client.options import CallOptions
from headpond.client.stream import AsyncStream
from headpond.client.upload import Upload
from headpond.client.wire import (
    BLOCK_BYTES,
    CONTENT,
    EVENTS,
    JSON,
    NO_WEBSOCKETS,
    TEXT,
    Outgoing,
    parse,
)

if TYPE_CHECKING:
    from headpond.client.socket import AsyncSocket

Wire = TypeVar("Wire", bound=BaseModel)


class AsyncTransport:
    """Sends calls until one is answered, or there is no point in trying again."""

    def __init__(self, config: ClientConfig, http: httpx2.AsyncClient | None = None) -> None:
        """Send through `http`, which is its owner's to close, or through a client of our own."""
        self.config = config
        self._owns = http is None
        self._http = http or httpx2.AsyncClient(limits=LIMITS)

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
        """Close the connections, unless they are someone else's."""
        if self._owns:
            await self._http.aclose()

    def with_config(self, config: ClientConfig) -> AsyncTransport:
        """Return a transport with other settings over the same connections."""
        return AsyncTransport(config, self._http)

    async def get(self, path: str, answer: type[Wire]) -> Wire:
        """Fetch `path`.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        return await self._whole(self._outgoing("GET", path), answer)

    async def post(
        self,
        path: str,
        body: bytes | Upload | None,
        answer: type[Wire],
        *,
        options: CallOptions | None = None,
    ) -> Wire:
        """Send JSON, a file, or nothing, and wait for the whole answer.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        return await self._whole(self._outgoing("POST", path, body, options), answer)

    async def text(
        self, path: str, body: bytes | Upload, *, options: CallOptions | None = None
    ) -> str:
        """Send JSON or a file, and wait for an answer that is a text.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        outgoing = self._outgoing("POST", path, body, options, accept=TEXT)
        return (await self._read(outgoing)).text

    async def delete(self, path: str, answer: type[Wire]) -> Wire:
        """Delete what is at `path`.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        return await self._whole(self._outgoing("DELETE", path), answer)

    async def content(self, path: str) -> AsyncGenerator[bytes]:
        """Yield the content at `path` as it comes.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        attempts = Attempts(self.config)
        outgoing = self._outgoing("GET", path, accept=CONTENT)
        response = await self._open(outgoing, attempts)
        try:
            async for block in response.aiter_bytes(BLOCK_BYTES):
                yield block
        except httpx2.RequestError as error:
            raise attempts.failure(error) from error
        finally:
            await response.aclose()

    async def stream(
        self,
        path: str,
        body: bytes | Upload,
        chunk: type[Wire],
        *,
        is_last: Callable[[Wire], bool] | None = None,
        options: CallOptions | None = None,
    ) -> AsyncStream[Wire]:
        """Send JSON or a file, and return the stream that answers it.

        Until the server has accepted the call it is tried again; after that never.

        Args:
            path: The route.
            body: The JSON, or a file, which is read before this returns.
            chunk: What each event is.
            is_last: Tells the event that ends a stream without `[DONE]`.
            options: Of this call only.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        outgoing = self._outgoing("POST", path, body, options, accept=EVENTS)
        response = await self._open(outgoing, Attempts(outgoing.config))
        return AsyncStream(response, chunk, is_last)

    @asynccontextmanager
    async def socket(
        self, path: str, query: Mapping[str, str], *, options: CallOptions | None = None
    ) -> AsyncGenerator[AsyncSocket]:
        """Open a WebSocket; leaving the block closes it.

        Until the server has accepted it, it is tried again.

        Raises:
            ImportError: There is no `websockets`.
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        try:
            from headpond.client.socket import async_opened  # noqa: PLC0415 - of few
        except ImportError as error:
            raise ImportError(NO_WEBSOCKETS) from error

        config = self.config if options is None else self.config.for_call(options)
        retrying = AsyncRetryingCaller(attempts=config.max_retries + 1, timeout=None)
        async with AsyncExitStack() as stack:

            async def attempt() -> AsyncSocket:
                return await stack.enter_async_context(async_opened(config, path, query))

            yield await retrying(Attempts(config).wait_s, attempt)

    def _outgoing(
        self,
        method: str,
        path: str,
        body: bytes | Upload | None = None,
        options: CallOptions | None = None,
        *,
        accept: str = JSON,
    ) -> Outgoing:
        config = self.config if options is None else self.config.for_call(options)
        return Outgoing(method=method, path=path, body=body, accept=accept, config=config)

    async def _whole(self, outgoing: Outgoing, answer: type[Wire]) -> Wire:
        return parse(await self._read(outgoing), answer)

    async def _read(self, outgoing: Outgoing) -> httpx2.Response:
        attempts = Attempts(outgoing.config)
        response = await self._open(outgoing, attempts)
        try:
            await response.aread()
        except httpx2.RequestError as error:
            raise attempts.failure(error) from error
        finally:
            await response.aclose()
        return response

    async def _open(self, outgoing: Outgoing, attempts: Attempts) -> httpx2.Response:
        retrying = AsyncRetryingCaller(attempts=outgoing.config.max_retries + 1, timeout=None)
        return await retrying(attempts.wait_s, self._attempt, outgoing, attempts)

    async def _attempt(self, outgoing: Outgoing, attempts: Attempts) -> httpx2.Response:
        request = outgoing.build(self._http, attempts)
        try:
            response = await self._http.send(request, stream=True)
            if response.is_success:
                return response
            try:
                await response.aread()
            finally:
                await response.aclose()
        except httpx2.RequestError as error:
            raise attempts.failure(error) from error
        raise error_of(response)
