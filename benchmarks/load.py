"""A lean HTTP/1.1 load client: closed loop, whole bodies and event streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Target:
    """One endpoint and the body to send to it."""

    port: int
    path: str
    body: bytes
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    def request(self) -> bytes:
        lines = [f"POST {self.path} HTTP/1.1", "Host: 127.0.0.1"]
        lines.append(f"Content-Type: {self.content_type}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


@dataclass(kw_only=True)
class Sample:
    """What one request saw: seconds to the first byte and in all, and events received."""

    first_s: float
    total_s: float
    events: int
    status: int
    head: bytes = b""
    body: bytes = b""

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers, by lower-case name."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return {name.strip().lower(): value.strip() for name, _, value in pairs}


class Connection:
    """One keep-alive connection."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._payload = target.request()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, payload: bytes | None = None) -> Sample:
        """Send the target's request, or another one, and read the whole answer."""
        started = time.perf_counter()
        if self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._target.port
            )
        reader = self._reader
        if reader is None:
            raise ConnectionError("not connected")
        self._writer.write(payload or self._payload)
        head = await reader.readuntil(b"\r\n\r\n")
        first = time.perf_counter() - started
        status = int(head.split(b" ", 2)[1])
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            body = await self._chunks(reader)
        else:
            length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
        if b"connection: close" in lower:
            self.close()
        events = body.count(b"data:")
        return Sample(
            first_s=first,
            total_s=time.perf_counter() - started,
            events=events,
            status=status,
            head=head,
            body=body,
        )

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        parts = []
        while True:
            size = int((await reader.readuntil(b"\r\n")).strip(), 16)
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
            if size == 0:
                return b"".join(parts)

    def close(self) -> None:
        """Drop the connection."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


async def closed_loop(target: Target, *, clients: int, seconds: float) -> list[Sample]:
    """Keep `clients` requests in flight for `seconds`."""
    samples: list[Sample] = []
    until = time.perf_counter() + seconds

    async def client() -> None:
        connection = Connection(target)
        while time.perf_counter() < until:
            samples.append(await connection.send())
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return samples


async def send_all(targets: Sequence[Target], *, clients: int) -> list[Sample]:
    """Send each request once, `clients` at a time; answers come in the order of the requests."""
    samples: dict[int, Sample] = {}
    waiting = iter(enumerate(targets))

    async def client() -> None:
        connection = Connection(targets[0])
        for number, target in waiting:
            samples[number] = await connection.send(target.request())
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return [samples[number] for number in range(len(targets))]
