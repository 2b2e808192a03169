"""A router's end of its lanes: one connection to each replica that it streams from."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from dataclasses import dataclass, field
from typing import cast

from headpond.call import Accepted, Ended
from headpond.errors import HeadpondError, RequestCancelled, WorkerLost
from headpond.feeding import Fed, FeedWindow, Input
from headpond.frames import FrameWriter, read_frame
from headpond.lane import ROUTER_ID_BYTES, WELCOME, Batch, CameTo, LaneAddress
from headpond.last_word import LastWord
from headpond.mailbox import Mailbox
from headpond.units import Work

_LAST_WORD_S = 5.0
"""So long after a stream was closed it is heard what its call came to: after the next step."""


@dataclass(kw_only=True, slots=True)
class OpenStream:
    """One stream at the router's end.

    Attributes:
        number: Its number on the wire.
        accepted: Done when the replica has admitted the call.
        mailbox: Where its events come.
        window: Lets through what it is fed.
        address: The lane it comes over, once that is known.
        last_word: What the call came to.
    """

    number: int
    accepted: asyncio.Future[Accepted]
    mailbox: Mailbox
    window: FeedWindow = field(default_factory=FeedWindow)
    address: LaneAddress | None = None
    last_word: LastWord = field(default_factory=LastWord)

    def take(self, batch: Batch) -> None:
        """Take what came for the stream."""
        if isinstance(batch, Accepted):
            if not self.accepted.done():
                self.accepted.set_result(batch)
        elif isinstance(batch, HeadpondError):
            self.fail(batch)
        elif isinstance(batch, Fed):
            self.window.tell(batch)
        elif isinstance(batch, CameTo):
            self.last_word.know(batch.work)
        elif isinstance(last := batch[-1], Ended):
            self.mailbox.end(batch, None)
            self.last_word.know(last.work)
            self.window.end(RequestCancelled("The call is over."))
        else:
            self.mailbox.push(batch)

    def fail(self, error: HeadpondError) -> None:
        """End the stream, whether or not it was admitted yet.

        Where its replica was lost, nobody will ever say what it came to: nothing, then.
        """
        if isinstance(error, WorkerLost):
            self.last_word.know(Work())
        if not self.accepted.done():
            self.accepted.set_exception(error)
            self.accepted.exception()  # who still waits gets it; nobody else has to
        self.mailbox.end((), error)
        self.window.end(error)


class LaneHub:
    """A router's end of all its lanes, and its open streams."""

    def __init__(self) -> None:
        self.router_id = secrets.token_bytes(ROUTER_ID_BYTES)
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
        """Forget a stream; what still comes for it is dropped.

        But for what the call came to, where somebody is to be told: that comes last.
        """
        if stream.last_word.awaited:
            loop = asyncio.get_running_loop()
            loop.call_later(_LAST_WORD_S, self._streams.pop, stream.number, None)
        else:
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
            await reader.readexactly(len(WELCOME))
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
