"""Frames on a lane: what is sent in one turn of the event loop travels together.

A frame is a 4-byte little-endian length and a pickle of `[(stream, message), ...]`.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from contextlib import suppress

_LENGTH = struct.Struct("<I")


class FrameWriter:
    """One end's way out: collects messages, and sends them once per loop turn."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._pending: list[tuple[int, object]] = []

    def put(self, stream: int, message: object) -> None:
        """Send a message of one stream at the end of this turn."""
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending.append((stream, message))

    async def close(self) -> None:
        """Close the connection; what was not sent is dropped."""
        self._pending = []
        self._writer.close()
        with suppress(ConnectionError):  # the other end was quicker
            await self._writer.wait_closed()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            frame = pickle.dumps(pending, protocol=pickle.HIGHEST_PROTOCOL)
            self._writer.write(_LENGTH.pack(len(frame)) + frame)


async def read_frame(reader: asyncio.StreamReader) -> list[tuple[int, object]]:
    """Return the messages of the next frame.

    The peer is one of our own processes: known by the token that came over a deployment
    handle, or by the address that did.

    Raises:
        asyncio.IncompleteReadError: The connection ended.
        ConnectionError: It broke.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    frame: list[tuple[int, object]] = pickle.loads(await reader.readexactly(length))  # noqa: S301
    return frame
