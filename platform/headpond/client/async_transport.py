"""The async transport: as the sync one, with awaits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

import httpx2
from pydantic import BaseModel
from stamina import AsyncRetryingCaller

from headpond.client.attempts import Attempts
from headpond.client.config import LIMITS, ClientConfig
from headpond.client.errors import error_of
from headpond.client.stream import AsyncStream
from headpond.client.upload import Upload
from headpond.client.wire import BLOCK_BYTES, CONTENT, EVENTS, Outgoing, parse

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
        return await self._whole(Outgoing(method="GET", path=path), answer)

    async def post(
        self,
        path: str,
        body: bytes | None,
        answer: type[Wire],
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Wire:
        """Send a JSON body, or none, and wait for the whole answer.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        outgoing = Outgoing(method="POST", path=path, body=body, headers=headers or {})
        return await self._whole(outgoing, answer)

    async def delete(self, path: str, answer: type[Wire]) -> Wire:
        """Delete what is at `path`.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        return await self._whole(Outgoing(method="DELETE", path=path), answer)

    async def upload(self, path: str, upload: Upload, answer: type[Wire]) -> Wire:
        """Send a file, which is read while it is sent.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        return await self._whole(Outgoing(method="POST", path=path, upload=upload), answer)

    async def content(self, path: str) -> AsyncGenerator[bytes]:
        """Yield the content at `path` as it comes.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        attempts = Attempts(self.config)
        outgoing = Outgoing(method="GET", path=path, accept=CONTENT)
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
        body: bytes,
        chunk: type[Wire],
        *,
        is_last: Callable[[Wire], bool] | None = None,
    ) -> AsyncStream[Wire]:
        """Send a JSON body and return the stream that answers it.

        Until the server has accepted the call it is tried again; after that never.

        Args:
            path: The route.
            body: The JSON.
            chunk: What each event is.
            is_last: Tells the event that ends a stream without `[DONE]`.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        outgoing = Outgoing(method="POST", path=path, body=body, accept=EVENTS)
        return AsyncStream(await self._open(outgoing, Attempts(self.config)), chunk, is_last)

    async def _whole(self, outgoing: Outgoing, answer: type[Wire]) -> Wire:
        attempts = Attempts(self.config)
        response = await self._open(outgoing, attempts)
        try:
            await response.aread()
        except httpx2.RequestError as error:
            raise attempts.failure(error) from error
        finally:
            await response.aclose()
        return parse(response, answer)

    async def _open(self, outgoing: Outgoing, attempts: Attempts) -> httpx2.Response:
        retrying = AsyncRetryingCaller(attempts=self.config.max_retries + 1, timeout=None)
        return await retrying(attempts.wait_s, self._attempt, outgoing, attempts)

    async def _attempt(self, outgoing: Outgoing, attempts: Attempts) -> httpx2.Response:
        request = outgoing.build(self._http, self.config, attempts)
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
