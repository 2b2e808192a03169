"""The client's resource for speech while it is spoken: `/v1/realtime`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Unpack

from headpond.client.async_transport import AsyncTransport
from headpond.client.transport import Transport
from headpond.client.wire import options_of
from headpond_workloads.speech.client_realtime_async_session import AsyncRealtimeSession
from headpond_workloads.speech.client_realtime_memory import Memory
from headpond_workloads.speech.client_realtime_params import (
    RealtimeParams,
    query_of,
    rate_hz_of,
    update_text,
)
from headpond_workloads.speech.client_realtime_session import RealtimeSession
from headpond_workloads.speech.schema_realtime import REALTIME_PATH

if TYPE_CHECKING:
    from headpond.client.socket import AsyncSocket, Socket


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
        options = options_of(params)
        with ExitStack() as stack:

            def dial(query: Mapping[str, str]) -> Socket:
                opening = self._transport.socket(REALTIME_PATH, query, options=options)
                return stack.enter_context(opening)

            socket = dial(query_of(params))
            socket.send(update)
            memory = Memory(update, rate_hz_of(params))
            comes_back = self._transport.config.for_call(options).max_retries > 0
            yield RealtimeSession(socket, memory, dial if comes_back else None)


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
        options = options_of(params)
        async with AsyncExitStack() as stack:

            async def dial(query: Mapping[str, str]) -> AsyncSocket:
                opening = self._transport.socket(REALTIME_PATH, query, options=options)
                return await stack.enter_async_context(opening)

            socket = await dial(query_of(params))
            await socket.send(update)
            memory = Memory(update, rate_hz_of(params))
            comes_back = self._transport.config.for_call(options).max_retries > 0
            yield AsyncRealtimeSession(socket, memory, dial if comes_back else None)
