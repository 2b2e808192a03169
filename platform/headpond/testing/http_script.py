"""A server that follows a script: for tests of clients, with no socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx2


class ScriptedServer:
    """Answers each request with the script's next response, or raises its next error.

    Give it to `httpx2.MockTransport`.
    """

    def __init__(self, *script: httpx2.Response | Exception) -> None:
        """Keep the script; a request beyond its end is an error of the test."""
        self._script = list(script)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Note the request and follow the script.

        Raises:
            LookupError: The script is at its end.
        """
        self.requests.append(request)
        if not self._script:
            raise LookupError(f"{request.method} {request.url} comes after the script's end")
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


class ScriptedBody(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body in parts, an error among them breaking it; knows whether it was closed."""

    def __init__(self, *parts: str | Exception) -> None:
        """Keep the parts, which are sent one by one."""
        self._parts = parts
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield part.encode()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part

    def close(self) -> None:
        """Note that the reader let go."""
        self.closed = True

    async def aclose(self) -> None:
        """Note that the reader let go."""
        self.closed = True


def sse_response(body: ScriptedBody, **headers: str) -> httpx2.Response:
    """Return a response that streams server-sent events; `_` stands for `-` in headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(
        200, headers={"content-type": "text/event-stream; charset=utf-8", **named}, stream=body
    )
