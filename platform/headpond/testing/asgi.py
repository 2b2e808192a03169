"""Requests to an ASGI app without a server, message by message.

HTTP clients' own ASGI transports collect the whole answer first; here a test can look at
each chunk as it comes, and hang up in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message


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
