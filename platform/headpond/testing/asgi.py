"""Requests and WebSockets to an ASGI app without a server, message by message.

HTTP clients' own ASGI transports collect the whole answer first; here a test can look at
each chunk as it comes, and hang up in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Scope


@dataclass(kw_only=True)
class AsgiRequest:
    """One request to an app, and what came back so far.

    Attributes:
        path: The path, prefix included.
        method: The HTTP method.
        parts: The body, in the parts in which it arrives.
        headers: By lower-case name.
        root_path: The prefix that the app is mounted at.
        ends: Whether the body ends after its last part.
        messages: What the app sent.
        arrived: Set and cleared at each message.
    """

    path: str
    method: str = "POST"
    parts: Sequence[bytes] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    root_path: str = ""
    ends: bool = True
    messages: list[Message] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, app: ASGIApp) -> AsgiRequest:
        """Send the request and wait until the app has returned."""
        unread = list(self.parts) or [b""]

        async def receive() -> Message:
            if unread:
                part = unread.pop(0)
                more = bool(unread) or not self.ends
                return {"type": "http.request", "body": part, "more_body": more}
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            self.messages.append(message)
            self._arrived.set()

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "path": self.path,
            "root_path": self.root_path,
            "query_string": b"",
            "headers": [(name.encode(), text.encode()) for name, text in self.headers.items()],
        }
        await app(scope, receive, send)
        return self

    def hang_up(self) -> None:
        """Go away."""
        self._gone.set()

    async def until(self, chunks: int) -> None:
        """Wait until the answer has so many chunks."""
        while len(self.chunks) < chunks:
            self._arrived.clear()
            await self._arrived.wait()

    @property
    def status(self) -> int:
        """The status of the answer."""
        status: int = self.messages[0]["status"]
        return status

    @property
    def answer_headers(self) -> Mapping[str, str]:
        """The headers of the answer."""
        return {name.decode(): text.decode() for name, text in self.messages[0]["headers"]}

    @property
    def chunks(self) -> list[bytes]:
        """The answer's body, as it was sent."""
        return [message["body"] for message in self.messages[1:]]

    @property
    def body(self) -> bytes:
        """The answer's body."""
        return b"".join(self.chunks)


@dataclass(kw_only=True)
class AsgiSocket:
    """One WebSocket to an app, and what came back so far.

    Attributes:
        path: The path, prefix included.
        query: What follows the question mark.
        headers: By lower-case name.
        subprotocols: What the client offers to speak.
        root_path: The prefix that the app is mounted at.
        extensions: What the server can do besides; refusing with an answer, unless said.
        messages: What the app sent, the handshake's answer first.
        reading: Cleared while the client reads nothing, so that the app's sends wait.
        received: How many messages the app has asked for and got.
    """

    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    subprotocols: Sequence[str] = ()
    root_path: str = ""
    extensions: Sequence[str] = ("websocket.http.response",)
    messages: list[Message] = field(default_factory=list)
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    received: int = 0
    _incoming: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _serving: asyncio.Task[None] | None = None
    _gone: bool = False

    async def open(self, app: ASGIApp) -> AsgiSocket:
        """Connect, and wait until the handshake is answered or the app has returned."""
        self.reading.set()
        self._incoming.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket",
            "asgi": {"version": "3.0"},
            "path": self.path,
            "root_path": self.root_path,
            "query_string": self.query.encode(),
            "headers": [(name.encode(), text.encode()) for name, text in self.headers.items()],
            "subprotocols": list(self.subprotocols),
            "extensions": {name: {} for name in self.extensions},
        }
        self._serving = asyncio.create_task(self._serve(app, scope))
        await self.until(1)
        return self

    def say(self, message: str | bytes) -> None:
        """Send a message."""
        key = "text" if isinstance(message, str) else "bytes"
        self._incoming.put_nowait({"type": "websocket.receive", key: message})

    def hang_up(self, code: int = 1006) -> None:
        """Go away; 1006 stands for a connection that broke."""
        self._gone = code == 1006
        self.reading.set()
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": code})

    def abort(self) -> None:
        """Have the app cancelled, as servers do whose client went away."""
        if self._serving is not None:
            self._serving.cancel()

    async def until(self, messages: int) -> None:
        """Wait until the app has sent so many messages, or has returned."""
        while len(self.messages) < messages and not self.over:
            self._came.clear()
            await self._came.wait()

    async def ended(self) -> None:
        """Wait until the app has returned."""
        while not self.over:
            self._came.clear()
            await self._came.wait()

    @property
    def over(self) -> bool:
        """Whether the app has returned."""
        return self._serving is not None and self._serving.done()

    @property
    def texts(self) -> list[str]:
        """The messages that the client has."""
        return [each["text"] for each in self.messages if each["type"] == "websocket.send"]

    @property
    def closed(self) -> tuple[int, str] | None:
        """The code and the reason with which the app closed, if it did."""
        closes = [each for each in self.messages if each["type"] == "websocket.close"]
        return (closes[0]["code"], closes[0]["reason"]) if closes else None

    async def _serve(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            asyncio.get_running_loop().call_soon(self._came.set)

    async def _receive(self) -> Message:
        message = await self._incoming.get()
        self.received += 1
        return message

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        if self._gone:
            raise ConnectionResetError
        self.messages.append(message)
        self._came.set()
