"""The lane between a replica and a router: the events of one engine step travel together.

A Serve stream costs about 180 us of CPU for each yield, so a yield per token per stream is
dear. Instead each router holds one connection to each replica it streams from, and all
events that one engine step made for it go out as one frame; what calls are fed goes the
other way. The Serve call that submitted the request stays open beside it, so that Serve
still counts, drains and cancels it.

Both ends unpickle what comes: the router from an address that a replica gave it over a
deployment handle, the replica from who has the token that came with that address.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headpond.call import Accepted, Event
from headpond.errors import HeadpondError
from headpond.feeding import Fed, Feeding, Input
from headpond.frames import FrameWriter, read_frame
from headpond.units import Work

_TOKEN_BYTES = 32
ROUTER_ID_BYTES = 16
WELCOME = b"\x01"
"""What a lane begins with on its way to the router."""

_GREETING_BYTES = _TOKEN_BYTES + ROUTER_ID_BYTES


@dataclass(frozen=True, slots=True)
class CameTo:
    """What a call came to that has failed as a whole, or was let go of."""

    work: Work


Batch = Accepted | Sequence[Event] | Fed | HeadpondError | CameTo
"""What was admitted, first; the events of a step; how far the call is with what it was fed;
the error that ends the stream; or, where it does not end with `Ended`, what it came to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneAddress:
    """Where a replica's lanes are, and the token that opens one."""

    host: str
    port: int
    token: bytes


class LaneServer:
    """The replica's end: collects events per router and sends them once per loop turn."""

    def __init__(self) -> None:
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._server: asyncio.Server | None = None
        self._writers: dict[bytes, FrameWriter] = {}
        self._fed: dict[tuple[bytes, int], Feeding] = {}

    async def start(self, host: str) -> LaneAddress:
        """Listen on a free port of `host` and return the address to hand out."""
        self._server = await asyncio.start_server(self._accept, host, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return LaneAddress(host=host, port=port, token=self._token)

    async def stop(self) -> None:
        """Close every lane."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers.values()):
            await writer.close()

    def is_open(self, router_id: bytes) -> bool:
        """Return whether a router has a lane here."""
        return router_id in self._writers

    def send(self, router_id: bytes, stream: int, batch: Batch) -> bool:
        """Send a batch of one stream; what comes in the same loop turn shares a frame.

        Returns False when the router has no lane here: nobody would ever read it.
        """
        writer = self._writers.get(router_id)
        if writer is None:
            return False
        writer.put(stream, batch)
        return True

    @contextmanager
    def feeding(self, router_id: bytes, stream: int, feeding: Feeding) -> Iterator[None]:
        """Hand what a router feeds to one of its streams to this, for as long as it lasts."""
        self._fed[router_id, stream] = feeding
        try:
            yield
        finally:
            del self._fed[router_id, stream]
            feeding.stop()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            greeting = await asyncio.wait_for(reader.readexactly(_GREETING_BYTES), timeout=5.0)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        token, router_id = greeting[:_TOKEN_BYTES], greeting[_TOKEN_BYTES:]
        if not hmac.compare_digest(token, self._token):
            writer.close()
            return
        frames = self._writers[router_id] = FrameWriter(writer)
        writer.write(WELCOME)
        try:
            while True:
                for stream, given in await read_frame(reader):
                    feeding = self._fed.get((router_id, stream))
                    if feeding is not None and isinstance(given, Input):
                        feeding.take(given)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the router is gone
        finally:
            if self._writers.get(router_id) is frames:
                del self._writers[router_id]
                self._lose(router_id)
            writer.close()

    def _lose(self, router_id: bytes) -> None:
        for (router, _), feeding in list(self._fed.items()):
            if router == router_id:
                feeding.lost()
