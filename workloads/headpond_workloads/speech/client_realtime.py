"""The client's resource for speech while it is spoken: `/v1/realtime`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Unpack

from headpond.client.async_transport import AsyncTransport
from headpond.client.errors import ConnectionFailed
from headpond.client.transport import Transport
from headpond.client.wire import options_of
from headpond_workloads.speech.client_realtime_events import (
    Heard,
    RealtimeEvent,
    append_text,
    clear_text,
    commit_text,
    parsed,
)
from headpond_workloads.speech.client_realtime_params import RealtimeParams, query_of, update_text
from headpond_workloads.speech.schema_realtime import REALTIME_PATH

if TYPE_CHECKING:
    from headpond.client.socket import AsyncSocket, Socket

_ENDED = "The server ended the session amid the sound."


class RealtimeSession:
    """A session in which speech is transcribed while it is spoken; iterating yields its events.

    One thread may send while another iterates.
    """

    def __init__(self, socket: Socket) -> None:
        """Talk over an open WebSocket."""
        self._socket = socket
        self._sequence = 0

    def append(self, sound: bytes) -> None:
        """Send more sound: 16 bits, one channel, at the session's rate, split anywhere.

        Raises:
            ConnectionFailed: The connection is gone.
        """
        self._sequence += 1
        self._socket.send(append_text(sound, self._sequence))

    def commit(self) -> None:
        """End the utterance here.

        Raises:
            ConnectionFailed: The connection is gone.
        """
        self._socket.send(commit_text())

    def clear(self) -> None:
        """Drop the sound that is not committed.

        Raises:
            ConnectionFailed: The connection is gone.
        """
        self._socket.send(clear_text())

    def __iter__(self) -> Iterator[RealtimeEvent]:
        while (text := self._socket.receive()) is not None:
            yield parsed(text)

    def listen(self, sound: Iterable[bytes]) -> Generator[RealtimeEvent]:
        """Send sound as it comes, and yield what the server says until all of it is text.

        The sound is read by a thread of its own. Who leaves the loop early leaves the session.

        Args:
            sound: Pieces, as `append` takes them; a `Microphone`, for one.

        Raises:
            HeadpondError: What the server says is wrong, or the connection is gone.
        """
        heard = Heard()
        threading.Thread(target=self._speak, args=(sound, heard), daemon=True).start()
        try:
            for event in self:
                heard.take(event)
                yield event
                if heard.over:
                    return
            raise ConnectionFailed(_ENDED)
        except ConnectionFailed:
            if heard.failure is not None:
                raise heard.failure from None
            raise
        finally:
            heard.stopped = True

    def _speak(self, sound: Iterable[bytes], heard: Heard) -> None:
        try:
            for piece in sound:
                if heard.stopped:
                    return
                self.append(piece)
            self._socket.send(heard.last_commit(self._sequence))
        except Exception as error:  # noqa: BLE001 - raised by who listens
            heard.failure = error
            self._socket.close()


class AsyncRealtimeSession:
    """A session in which speech is transcribed while it is spoken; iterating yields its events.

    One task may send while another iterates.
    """

    def __init__(self, socket: AsyncSocket) -> None:
        """Talk over an open WebSocket."""
        self._socket = socket
        self._sequence = 0

    async def append(self, sound: bytes) -> None:
        """Send more sound: 16 bits, one channel, at the session's rate, split anywhere.

        Raises:
            ConnectionFailed: The connection is gone.
        """
        self._sequence += 1
        await self._socket.send(append_text(sound, self._sequence))

    async def commit(self) -> None:
        """End the utterance here.

        Raises:
            ConnectionFailed: The connection is gone.
        """
        await self._socket.send(commit_text())

    async def clear(self) -> None:
        """Drop the sound that is not committed.

        Raises:
            ConnectionFailed: The connection is gone.
        """
        await self._socket.send(clear_text())

    async def __aiter__(self) -> AsyncIterator[RealtimeEvent]:
        while (text := await self._socket.receive()) is not None:
            yield parsed(text)

    async def listen(
        self, sound: Iterable[bytes] | AsyncIterable[bytes]
    ) -> AsyncGenerator[RealtimeEvent]:
        """Send sound as it comes, and yield what the server says until all of it is text.

        Who leaves the loop early leaves the session.

        Args:
            sound: Pieces, as `append` takes them; what is no async iterator is read by another
                thread, a `Microphone`, for one.

        Raises:
            HeadpondError: What the server says is wrong, or the connection is gone.
        """
        heard = Heard()
        speaking = asyncio.create_task(self._speak(sound, heard))
        try:
            async for event in self:
                heard.take(event)
                yield event
                if heard.over:
                    return
            raise ConnectionFailed(_ENDED)
        except ConnectionFailed:
            if heard.failure is not None:
                raise heard.failure from None
            raise
        finally:
            speaking.cancel()
            with suppress(asyncio.CancelledError):
                await speaking

    async def _speak(self, sound: Iterable[bytes] | AsyncIterable[bytes], heard: Heard) -> None:
        try:
            async for piece in _pieces(sound):
                await self.append(piece)
            await self._socket.send(heard.last_commit(self._sequence))
        except Exception as error:  # noqa: BLE001 - raised by who listens
            heard.failure = error
            await self._socket.close()


class Realtime:
    """`/v1/realtime`: speech that is transcribed while it is spoken; needs `websockets`."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @contextmanager
    def connect(self, **params: Unpack[RealtimeParams]) -> Generator[RealtimeSession]:
        """Open a session; leaving the block ends it.

        Raises:
            ImportError: There is no `websockets`; `pip install 'headpond[realtime]'`.
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        update = update_text(params)
        opening = self._transport.socket(
            REALTIME_PATH, query_of(params), options=options_of(params)
        )
        with opening as socket:
            socket.send(update)
            yield RealtimeSession(socket)


class AsyncRealtime:
    """`/v1/realtime`: speech that is transcribed while it is spoken; needs `websockets`."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @asynccontextmanager
    async def connect(
        self, **params: Unpack[RealtimeParams]
    ) -> AsyncGenerator[AsyncRealtimeSession]:
        """Open a session; leaving the block ends it.

        Raises:
            ImportError: There is no `websockets`; `pip install 'headpond[realtime]'`.
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        update = update_text(params)
        opening = self._transport.socket(
            REALTIME_PATH, query_of(params), options=options_of(params)
        )
        async with opening as socket:
            await socket.send(update)
            yield AsyncRealtimeSession(socket)


async def _pieces(sound: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(sound, AsyncIterable):
        async for piece in sound:
            yield piece
        return
    pieces = iter(sound)

    def read() -> bytes | None:
        return next(pieces, None)

    while (read_piece := await asyncio.to_thread(read)) is not None:
        yield read_piece
