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
import itertools
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from headpond.call import Accepted, Ended, Event
from headpond.errors import HeadpondError, RequestCancelled, WorkerLost
from headpond.feeding import Fed, Feeding, FeedWindow, Input
from headpond.frames import FrameWriter, read_frame
from headpond.mailbox import Mailbox

_TOKEN_BYTES = 32
_ROUTER_ID_BYTES = 16
_WELCOME = b"\x01"
_GREETING_BYTES = _TOKEN_BYTES + _ROUTER_ID_BYTES

Batch = Accepted | Sequence[Event] | Fed | HeadpondError
"""What was admitted, first; the events of a step; how far the call is with what it was fed;
or the error that ends the stream."""


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
        writer.write(_WELCOME)
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


@dataclass(kw_only=True, slots=True)
class OpenStream:
    """One stream at the router's end.

    Attributes:
        number: Its number on the wire.
        accepted: Done when the replica has admitted the call.
        mailbox: Where its events come.
        window: Lets through what it is fed.
        address: The lane it comes over, once that is known.
    """

    number: int
    accepted: asyncio.Future[Accepted]
    mailbox: Mailbox
    window: FeedWindow = field(default_factory=FeedWindow)
    address: LaneAddress | None = None

    def take(self, batch: Batch) -> None:
        """Take what came for the stream."""
        if isinstance(batch, Accepted):
            if not self.accepted.done():
                self.accepted.set_result(batch)
        elif isinstance(batch, HeadpondError):
            self.fail(batch)
        elif isinstance(batch, Fed):
            self.window.tell(batch)
        elif isinstance(batch[-1], Ended):
            self.mailbox.end(batch, None)
            self.window.end(RequestCancelled("The call is over."))
        else:
            self.mailbox.push(batch)

    def fail(self, error: HeadpondError) -> None:
        """End the stream, whether or not it was admitted yet."""
        if not self.accepted.done():
            self.accepted.set_exception(error)
            self.accepted.exception()  # who still waits gets it; nobody else has to
        self.mailbox.end((), error)
        self.window.end(error)


class LaneHub:
    """A router's end of all its lanes, and its open streams."""

    def __init__(self) -> None:
        self.router_id = secrets.token_bytes(_ROUTER_ID_BYTES)
        self._numbers = itertools.count()
        self._streams: dict[int, OpenStream] = {}
        self._lanes: dict[LaneAddress, asyncio.Task[asyncio.Task[None]]] = {}
        self._writers: dict[LaneAddress, FrameWriter] = {}

    def open_stream(self) -> OpenStream:
        """Return a new stream; what comes for its number reaches it until it is closed."""
        loop = asyncio.get_running_loop()
        stream = OpenStream(
            number=next(self._numbers), accepted=loop.create_future(), mailbox=Mailbox(loop)
        )
        self._streams[stream.number] = stream
        return stream

    async def connect(self, address: LaneAddress) -> None:
        """Return when the lane to a replica is open on both ends.

        Raises:
            WorkerLost: The replica does not answer at its address.
        """
        connecting = self._lanes.get(address)
        if connecting is None:
            connecting = asyncio.create_task(self._connect(address))
            self._lanes[address] = connecting
        try:
            await asyncio.shield(connecting)
        except (OSError, asyncio.IncompleteReadError) as error:
            self._lanes.pop(address, None)
            raise WorkerLost from error

    async def feed(self, stream: OpenStream, payload: object, units: int) -> None:
        """Send input to the replica of a stream, once it has taken in what came before.

        Raises:
            HeadpondError: The stream is over, for this reason, or it takes no more.
        """
        await stream.window.enter(units)
        writer = None if stream.address is None else self._writers.get(stream.address)
        if writer is None:
            raise WorkerLost
        writer.put(stream.number, Input(payload, units))

    def close_stream(self, stream: OpenStream) -> None:
        """Forget a stream; what still comes for it is dropped."""
        self._streams.pop(stream.number, None)

    async def close(self) -> None:
        """Close every lane; streams still open end with `WorkerLost`."""
        for connecting in list(self._lanes.values()):
            if connecting.done() and not connecting.cancelled() and not connecting.exception():
                connecting.result().cancel()
            connecting.cancel()

    async def _connect(self, address: LaneAddress) -> asyncio.Task[None]:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(address.token + self.router_id)
        try:
            await reader.readexactly(len(_WELCOME))
        except BaseException:
            writer.close()
            raise
        frames = self._writers[address] = FrameWriter(writer)
        return asyncio.create_task(self._read(address, reader, frames))

    async def _read(
        self, address: LaneAddress, reader: asyncio.StreamReader, writer: FrameWriter
    ) -> None:
        try:
            while True:
                frame = cast("list[tuple[int, Batch]]", await read_frame(reader))
                for number, batch in frame:
                    if (stream := self._streams.get(number)) is not None:
                        stream.address = address
                        stream.take(batch)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the replica is gone; its streams are told below
        finally:
            self._lanes.pop(address, None)
            if self._writers.get(address) is writer:
                del self._writers[address]
            for stream in self._streams.values():
                if stream.address == address:
                    stream.fail(WorkerLost())
            await writer.close()
