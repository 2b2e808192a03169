"""Keeping uvicorn from taking a client for dead that it was not let hear."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from starlette.types import Message, Receive


class _Connection(Protocol):
    """What uvicorn's WebSocket protocol has of this."""

    loop: asyncio.AbstractEventLoop
    read_paused: bool
    ping_timeout: float | None
    pong_timer: asyncio.TimerHandle | None

    def keepalive_timeout(self) -> None: ...


def spare_unheard(receive: Receive) -> Receive:
    """Let no ping of uvicorn time out while what the client sends is not all read.

    Its pong is behind all that it has sent before. While a session takes in no more, which
    is how a client that sends too fast is held up, that is not read either, and the
    connection would be closed after 40 s. Other servers are left alone.

    Returns:
        What to receive by instead, so that it is known whether anything comes.
    """
    server = getattr(receive, "__self__", None)
    if not (hasattr(server, "keepalive_timeout") and hasattr(server, "read_paused")):
        return receive
    connection = cast("_Connection", server)
    time_out = connection.keepalive_timeout
    heard = False

    async def hear() -> Message:
        nonlocal heard
        message = await receive()
        heard = True
        return message

    def time_out_unless_alive() -> None:
        nonlocal heard
        if (heard or connection.read_paused) and connection.ping_timeout is not None:
            heard = False
            connection.pong_timer = connection.loop.call_later(
                connection.ping_timeout, time_out_unless_alive
            )
        else:
            time_out()

    connection.keepalive_timeout = time_out_unless_alive  # type: ignore[method-assign]
    return hear
