"""WebSockets: texts to and fro, and what goes wrong as our errors; needs `websockets`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlencode

import httpx2
from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as async_connect
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidStatus,
)
from websockets.sync.client import ClientConnection, connect

from headpond.client.attempts import CONNECT_S
from headpond.client.config import ClientConfig
from headpond.client.errors import ConnectionFailed, ConnectionTimedOut, error_of

_MESSAGE_BYTES = 2**20


class SocketClosed(ConnectionFailed):
    """The server closed the WebSocket."""

    code = "socket_closed"


class Socket:
    """An open WebSocket; one thread may send while another receives."""

    def __init__(self, connection: ClientConnection) -> None:
        """Talk over an open connection."""
        self._connection = connection

    def send(self, text: str) -> None:
        """Send a message.

        Raises:
            ConnectionFailed: The connection is gone; `SocketClosed` where the server said why.
        """
        with _failures():
            self._connection.send(text)

    def receive(self) -> str | None:
        """Return the next message; None when the socket was closed in order.

        Raises:
            ConnectionFailed: The connection is gone; `SocketClosed` where the server said why.
        """
        try:
            with _failures():
                return self._connection.recv(decode=True)
        except _Over:
            return None

    def close(self) -> None:
        """Close it; who receives then gets None. Safe to call twice."""
        self._connection.close()


class AsyncSocket:
    """An open WebSocket; one task may send while another receives."""

    def __init__(self, connection: AsyncConnection) -> None:
        """Talk over an open connection."""
        self._connection = connection

    async def send(self, text: str) -> None:
        """Send a message.

        Raises:
            ConnectionFailed: The connection is gone; `SocketClosed` where the server said why.
        """
        with _failures():
            await self._connection.send(text)

    async def receive(self) -> str | None:
        """Return the next message; None when the socket was closed in order.

        Raises:
            ConnectionFailed: The connection is gone; `SocketClosed` where the server said why.
        """
        try:
            with _failures():
                return await self._connection.recv(decode=True)
        except _Over:
            return None

    async def close(self) -> None:
        """Close it; who receives then gets None. Safe to call twice."""
        await self._connection.close()


@contextmanager
def opened(config: ClientConfig, path: str, query: Mapping[str, str]) -> Generator[Socket]:
    """Open a WebSocket; leaving the block closes it.

    Raises:
        HeadpondError: The server's own error, or `ConnectionFailed`.
    """
    with _refusals():
        connection = connect(
            _url(config, path, query),
            additional_headers=config.request_headers(),
            user_agent_header=None,
            open_timeout=min(config.timeout_s, CONNECT_S),
            # The answer to a ping waits behind all that was sent before it.
            ping_interval=None,
            max_size=_MESSAGE_BYTES,
        )
    with connection:
        yield Socket(connection)


@asynccontextmanager
async def async_opened(
    config: ClientConfig, path: str, query: Mapping[str, str]
) -> AsyncGenerator[AsyncSocket]:
    """Open a WebSocket; leaving the block closes it.

    Raises:
        HeadpondError: The server's own error, or `ConnectionFailed`.
    """
    with _refusals():
        connection = await async_connect(
            _url(config, path, query),
            additional_headers=config.request_headers(),
            user_agent_header=None,
            open_timeout=min(config.timeout_s, CONNECT_S),
            ping_interval=None,
            max_size=_MESSAGE_BYTES,
        )
    async with connection:
        yield AsyncSocket(connection)


class _Over(Exception):
    """The socket is closed, as it should be."""


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except ConnectionClosedOK:
        raise _Over from None
    except ConnectionClosed as closed:
        frame = closed.rcvd
        if frame is None:
            raise ConnectionFailed from closed
        reason = frame.reason or f"The server closed the socket with code {frame.code}."
        raise SocketClosed(reason) from None


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except InvalidStatus as error:
        raise error_of(_answer(error)) from None
    except TimeoutError as error:
        raise ConnectionTimedOut from error
    except (InvalidHandshake, OSError) as error:
        raise ConnectionFailed from error


def _answer(error: InvalidStatus) -> httpx2.Response:
    told = error.response
    headers = [(name, value) for name, value in told.headers.raw_items()]
    return httpx2.Response(told.status_code, headers=headers, content=bytes(told.body or b""))


def _headers(config: ClientConfig) -> dict[str, str]:
    return config.request_headers()


def _url(config: ClientConfig, path: str, query: Mapping[str, str]) -> str:
    return f"ws{config.base_url.removeprefix('http')}{path}?{urlencode(query)}"
