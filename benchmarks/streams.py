"""A lean streaming client of the OpenAI dialect: when every piece of text came, and how it ended."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

_LINE_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One streamed request to a server on the loopback."""

    port: int
    body: Mapping[str, object]
    path: str = "/v1/completions"
    headers: Mapping[str, str] = field(default_factory=dict)

    def payload(self) -> bytes:
        """Return the HTTP request; the connection closes after it."""
        body = json.dumps(self.body).encode()
        lines = [
            f"POST {self.path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "Connection: close",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(kw_only=True)
class Stream:
    """What one request saw; times are seconds of `time.perf_counter`.

    Attributes:
        sent: When the request was sent.
        times: When each piece of text came.
        ended: When the answer was over.
        usage: The server's own count, when it gave one.
        finish: Its reason to finish; None when the stream broke off.
        error: What went wrong, for a refusal or a broken stream.
    """

    sent: float
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    text: str = ""
    ended: float = 0.0
    usage: dict[str, Any] = field(default_factory=dict)
    finish: str | None = None
    error: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens that came, by the server's count or else one a piece."""
        return int(self.usage.get("completion_tokens") or len(self.times))

    @property
    def first_s(self) -> float:
        """Time to the first text."""
        return self.times[0] - self.sent

    @property
    def gaps_s(self) -> list[float]:
        """Times between pieces of text."""
        return [later - earlier for earlier, later in pairwise(self.times)]


async def stream(ask: Ask, *, timeout_s: float = 300.0) -> Stream:
    """Send one request and read its stream; whatever goes wrong stands in `error`."""
    seen = Stream(sent=time.perf_counter())
    try:
        async with asyncio.timeout(timeout_s):
            await _exchange(ask, seen)
    except TimeoutError:
        seen.error = f"no end within {timeout_s:.0f} s"
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        seen.error = f"{type(error).__name__}: {error}"
    seen.ended = time.perf_counter()
    if seen.error is None and not seen.times:
        seen.error = "no text came"
    return seen


async def burst(asks: Sequence[Ask], *, timeout_s: float = 300.0) -> list[Stream]:
    """Send all at once and wait for all."""
    return await asyncio.gather(*(stream(ask, timeout_s=timeout_s) for ask in asks))


async def _exchange(ask: Ask, seen: Stream) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", ask.port, limit=_LINE_BYTES)
    try:
        writer.write(ask.payload())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        seen.status = int(head[0].split(" ", 2)[1])
        pairs = (line.partition(":") for line in head[1:] if line)
        seen.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        chunked = "chunked" in seen.headers.get("transfer-encoding", "")
        if seen.status != 200:
            body = b"".join([part async for part in _body(reader, chunked, seen.headers)])
            seen.error = f"{seen.status}: {body[:300].decode(errors='replace')}"
            return
        await _events(_body(reader, chunked, seen.headers), seen)
    finally:
        writer.close()


async def _body(
    reader: asyncio.StreamReader, chunked: bool, headers: Mapping[str, str]
) -> AsyncIterator[bytes]:
    if not chunked:
        if "content-length" in headers:
            yield await reader.readexactly(int(headers["content-length"]))
            return
        while data := await reader.read(65536):
            yield data
        return
    while size := int((await reader.readline()).strip() or b"0", 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def _events(body: AsyncIterator[bytes], seen: Stream) -> None:
    buffer = b""
    async for data in body:
        now = time.perf_counter()
        *events, buffer = (buffer + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:") and (content := line[5:].strip()) != b"[DONE]":
                    _take(json.loads(content), now, seen)


def _take(event: Mapping[str, Any], now: float, seen: Stream) -> None:
    if event.get("error"):
        seen.error = str(event["error"])[:300]
    if event.get("usage"):
        seen.usage = event["usage"]
    for choice in event.get("choices", []):
        text = choice["text"] if "text" in choice else (choice.get("delta") or {}).get("content")
        if text:
            seen.times.append(now)
            seen.text += text
        seen.finish = choice.get("finish_reason") or seen.finish
