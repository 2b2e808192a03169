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

from headpond.call import Ended, Event
from headpond.errors import HeadpondError, WorkerLost
from headpond.mailbox import Mailbox

_LENGTH = struct.Struct("<I")
_TOKEN_BYTES = 32
_ROUTER_ID_BYTES = 16
_GREETING_BYTES = _TOKEN_BYTES + _ROUTER_ID_BYTES

Batch = Sequence[Event] | HeadpondError
"""The events of one step, or the error with which the stream ends."""


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

    def send(self, router_id: bytes, stream: int, events: Batch) -> None:
        """Send events of one stream; what comes in the same loop turn shares a frame.

        Events for a router whose lane is not open yet wait for it, until `forget`.
        """
        self._pending.setdefault(router_id, []).append((stream, events))
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def forget(self, router_id: bytes, stream: int) -> None:
        """Drop what waits for a stream whose caller went away before its lane was open."""
        if (waiting := self._pending.get(router_id)) is not None:
            self._pending[router_id] = [entry for entry in waiting if entry[0] != stream]
            if not self._pending[router_id]:
                del self._pending[router_id]

    def _flush(self) -> None:
        self._flush_scheduled = False
        for router_id in [router for router in self._pending if router in self._writers]:
            frame = pickle.dumps(self._pending.pop(router_id), protocol=pickle.HIGHEST_PROTOCOL)
            self._writers[router_id].write(_LENGTH.pack(len(frame)) + frame)

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
        self._flush()
        try:
            await reader.read()  # nothing more comes: this ends when the router goes
        except ConnectionError:
            pass
        finally:
            if self._writers.get(router_id) is writer:
                del self._writers[router_id]
                self._pending.pop(router_id, None)
            writer.close()


class LaneHub:
    """A router's end of all its lanes, and the mailboxes of its open streams."""

    def __init__(self) -> None:
        self.router_id = secrets.token_bytes(_ROUTER_ID_BYTES)
        self._numbers = itertools.count()
        self._mailboxes: dict[int, Mailbox] = {}
        self._attached: dict[int, LaneAddress] = {}
        self._lanes: dict[LaneAddress, asyncio.Task[asyncio.Task[None]]] = {}

    def open_stream(self) -> tuple[int, Mailbox]:
        """Return a new stream's number and the mailbox its events will come to."""
        stream, mailbox = next(self._numbers), Mailbox(asyncio.get_running_loop())
        self._mailboxes[stream] = mailbox
        return stream, mailbox

    async def attach(self, stream: int, address: LaneAddress) -> None:
        """Make sure that the lane to `address` is open; the stream fails if it breaks.

        Raises:
            WorkerLost: The replica does not answer at its address.
        """
        connecting = self._lanes.get(address)
        if connecting is None:
            connecting = asyncio.create_task(self._connect(address))
            self._lanes[address] = connecting
        self._attached[stream] = address
        try:
            await asyncio.shield(connecting)
        except OSError as error:
            self._lanes.pop(address, None)
            raise WorkerLost from error

    def close_stream(self, stream: int) -> None:
        """Forget a stream; events that still come for it are dropped."""
        self._mailboxes.pop(stream, None)
        self._attached.pop(stream, None)

    async def close(self) -> None:
        """Close every lane; streams still open on one end with `WorkerLost`."""
        for connecting in list(self._lanes.values()):
            if connecting.done() and not connecting.cancelled() and not connecting.exception():
                connecting.result().cancel()
            connecting.cancel()

    async def _connect(self, address: LaneAddress) -> asyncio.Task[None]:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(address.token + self.router_id)
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
                for stream, batch in frame:
                    self._hand_over(stream, batch)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the replica is gone; its streams are told below
        finally:
            writer.close()
            self._lanes.pop(address, None)
            for stream, attached in self._attached.items():
                if attached == address:
                    self._mailboxes[stream].end((), WorkerLost())

    def _hand_over(self, stream: int, batch: Batch) -> None:
        mailbox = self._mailboxes.get(stream)
        if mailbox is None:
            return
        if isinstance(batch, HeadpondError):
            mailbox.end((), batch)
        elif isinstance(batch[-1], Ended):
            mailbox.end(batch, None)
        else:
            mailbox.push(batch)
