"""The lane between a replica and a router: the events of one engine step travel together.

A Serve stream costs about 180 us of CPU for each yield, so a yield per token per stream is
dear. Instead each router holds one connection to each replica it streams from, and all
events that one engine step made for it go out as one frame. The Serve call that submitted
the request stays open beside it, so that Serve still counts, drains and cancels it.

A frame is a 4-byte little-endian length and a pickle of `[(stream, events), ...]`. Only the
router unpickles, and only from an address that a replica gave it over a deployment handle.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import pickle
import secrets
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from headpond.call import Accepted, Ended, Event
from headpond.errors import HeadpondError, WorkerLost
from headpond.mailbox import Mailbox

_LENGTH = struct.Struct("<I")
_TOKEN_BYTES = 32
_ROUTER_ID_BYTES = 16
_WELCOME = b"\x01"
_GREETING_BYTES = _TOKEN_BYTES + _ROUTER_ID_BYTES

Batch = Accepted | Sequence[Event] | HeadpondError
"""What was admitted, first; then the events of a step; or the error that ends the stream."""


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
        self._writers: dict[bytes, asyncio.StreamWriter] = {}
        self._pending: dict[bytes, list[tuple[int, Batch]]] = {}
        self._flush_scheduled = False

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
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def is_open(self, router_id: bytes) -> bool:
        """Return whether a router has a lane here."""
        return router_id in self._writers

    def send(self, router_id: bytes, stream: int, batch: Batch) -> bool:
        """Send a batch of one stream; what comes in the same loop turn shares a frame.

        Returns False when the router has no lane here: nobody would ever read it.
        """
        if router_id not in self._writers:
            return False
        self._pending.setdefault(router_id, []).append((stream, batch))
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)
        return True

    def _flush(self) -> None:
        self._flush_scheduled = False
        for router_id, batches in self._pending.items():
            frame = pickle.dumps(batches, protocol=pickle.HIGHEST_PROTOCOL)
            self._writers[router_id].write(_LENGTH.pack(len(frame)) + frame)
        self._pending.clear()

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
        self._writers[router_id] = writer
        writer.write(_WELCOME)
        try:
            await reader.read()  # nothing more comes: this ends when the router goes
        except ConnectionError:
            pass
        finally:
            if self._writers.get(router_id) is writer:
                del self._writers[router_id]
                self._pending.pop(router_id, None)
            writer.close()


@dataclass(kw_only=True, slots=True)
class OpenStream:
    """One stream at the router's end.

    Attributes:
        number: Its number on the wire.
        accepted: Done when the replica has admitted the call.
        mailbox: Where its events come.
        address: The lane it comes over, once that is known.
    """

    number: int
    accepted: asyncio.Future[Accepted]
    mailbox: Mailbox
    address: LaneAddress | None = None

    def take(self, batch: Batch) -> None:
        """Take what came for the stream."""
        if isinstance(batch, Accepted):
            if not self.accepted.done():
                self.accepted.set_result(batch)
        elif isinstance(batch, HeadpondError):
            self.fail(batch)
        elif isinstance(batch[-1], Ended):
            self.mailbox.end(batch, None)
        else:
            self.mailbox.push(batch)

    def fail(self, error: HeadpondError) -> None:
        """End the stream, whether or not it was admitted yet."""
        if not self.accepted.done():
            self.accepted.set_exception(error)
            self.accepted.exception()  # who still waits gets it; nobody else has to
        self.mailbox.end((), error)


class LaneHub:
    """A router's end of all its lanes, and its open streams."""

    def __init__(self) -> None:
        self.router_id = secrets.token_bytes(_ROUTER_ID_BYTES)
        self._numbers = itertools.count()
        self._streams: dict[int, OpenStream] = {}
        self._lanes: dict[LaneAddress, asyncio.Task[asyncio.Task[None]]] = {}

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
        return asyncio.create_task(self._read(address, reader, writer))

    async def _read(
        self, address: LaneAddress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                # The peer is our own replica, known by the token that came over its handle.
                frame: list[tuple[int, Batch]] = pickle.loads(  # noqa: S301
                    await reader.readexactly(length)
                )
                for number, batch in frame:
                    if (stream := self._streams.get(number)) is not None:
                        stream.address = address
                        stream.take(batch)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the replica is gone; its streams are told below
        finally:
            writer.close()
            self._lanes.pop(address, None)
            for stream in self._streams.values():
                if stream.address == address:
                    stream.fail(WorkerLost())
