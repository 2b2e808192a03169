"""A session of the async client in which speech is transcribed while it is spoken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import suppress
from typing import TYPE_CHECKING

from headpond.client.errors import ConnectionFailed
from headpond_workloads.speech.client_realtime_events import Heard, RealtimeEvent, parsed
from headpond_workloads.speech.client_realtime_memory import REST_S, Memory
from headpond_workloads.speech.client_realtime_session import CLOSED, ENDED
from headpond_workloads.speech.schema_realtime_events import SessionResumed

if TYPE_CHECKING:
    from headpond.client.socket import AsyncSocket


class AsyncRealtimeSession:
    """A session in which speech is transcribed while it is spoken; iterating yields its events.

    One task may send while another iterates. Where the connection breaks, iterating comes back
    to the session for as long as the server keeps it, and sends again what is in no final text
    yet, as it does where the server has lost the worker that listened; what is sent meanwhile is
    kept. A client with `max_retries=0` leaves that to its user.
    """

    def __init__(
        self,
        socket: AsyncSocket,
        memory: Memory,
        redial: Callable[[Mapping[str, str]], Awaitable[AsyncSocket]] | None,
    ) -> None:
        """Talk over an open WebSocket.

        Args:
            socket: The open one.
            memory: What was sent so far.
            redial: Opens another one at the same route, with a query; None never comes back.
        """
        self._socket = socket
        self._memory = memory
        self._redial = redial
        self._sending = asyncio.Lock()
        self._away = False
        self._over = False

    async def append(self, sound: bytes) -> None:
        """Send more sound: 16 bits, one channel, at the session's rate, split anywhere.

        Raises:
            ConnectionFailed: The connection is gone for good.
        """
        async with self._sending:
            await self._send(self._memory.append(sound))

    async def commit(self) -> None:
        """End the utterance here.

        Raises:
            ConnectionFailed: The connection is gone for good.
        """
        async with self._sending:
            await self._send(self._memory.commit())

    async def clear(self) -> None:
        """Drop the sound that is not committed.

        Raises:
            ConnectionFailed: The connection is gone for good.
        """
        async with self._sending:
            await self._send(self._memory.clear())

    async def __aiter__(self) -> AsyncIterator[RealtimeEvent]:
        while (text := await self._receive()) is not None:
            event = parsed(text)
            shown = self._memory.take(event)
            loss = None if self._redial is None else self._memory.loss(event)
            if loss is not None:
                await asyncio.sleep(loss.wait_s)
                await self._send_again(loss.next_sequence)
            if shown and (loss is None or isinstance(event, SessionResumed)):
                yield event

    async def listen(
        self, sound: Iterable[bytes] | AsyncIterable[bytes]
    ) -> AsyncGenerator[RealtimeEvent]:
        """Send sound as it comes, and yield what the server says until all of it is text.

        Who leaves the loop early leaves the session.

        Args:
            sound: Pieces, as `append` takes them; what is no async iterator is read by another
                thread, a `Microphone`, for one.

        Raises:
            HeadpondError: What the server says is wrong, or the connection is gone for good.
        """
        heard = Heard()
        speaking = asyncio.create_task(self._speak(sound, heard))
        try:
            async for event in self:
                heard.take(event)
                yield event
                if heard.over:
                    return
            raise ConnectionFailed(ENDED)
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
            async with self._sending:
                heard.end(self._memory.sequence)
                await self._send(self._memory.end())
        except Exception as error:  # noqa: BLE001 - raised by who listens
            heard.failure = error
            self._over = True
            await self._socket.close()

    async def _send(self, text: str) -> None:
        """Send what is kept; where the connection is broken, who iterates sends it again."""
        if self._away:
            return
        try:
            await self._socket.send(text)
        except ConnectionFailed:
            if not self._returns:
                raise

    async def _send_again(self, next_sequence: int) -> None:
        async with self._sending:
            self._away = False
            for text in self._memory.again(next_sequence):
                await self._send(text)

    @property
    def _returns(self) -> bool:
        return self._redial is not None and self._memory.window_s > 0 and not self._over

    async def _receive(self) -> str | None:
        while True:
            try:
                return await self._socket.receive()
            except ConnectionFailed as error:
                if not self._returns or error.code == CLOSED:
                    self._over = True
                    raise
                await self._come_back(error)

    async def _come_back(self, error: ConnectionFailed) -> None:
        """Open the session's next connection, on which the server says what it has."""
        until_s = time.monotonic() + self._memory.window_s
        async with self._sending:
            self._away = True
        while self._redial is not None and not self._over:
            try:
                self._socket = await self._redial(self._memory.address())
            except ConnectionFailed:
                if time.monotonic() > until_s:
                    break
                await asyncio.sleep(REST_S)
            else:
                return
        self._over = True
        self._away = False
        raise error


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
