"""From a dropped connection to released state, on both paths, with a real model.

A stream is dropped while other streams decode beside it; the time runs until the replica's
own gauge says that its slot is free, read every few milliseconds, so it includes the step
under way and half a reading's interval.

    make bench SUBJECT=cancellation
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence

from harness import Server, machine, median, quantile, versions, write_results

PORT = 8105
MODEL = "smollm2-135m"
DIRECT = f"/models/{MODEL}"
BESIDE = 3
ROUNDS = 40
READ_EVERY_S = 0.005


class Stream:
    """One streamed chat over a bare socket, so that it can be dropped at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, prefix: str, max_tokens: int) -> Stream:
        """Send the request and wait for its first event."""
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        body = json.dumps(
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": "Tell a long story."}],
                "max_tokens": max_tokens,
                "stream": True,
            }
        ).encode()
        writer.write(
            f"POST {prefix}/v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await reader.readuntil(b"data: ")
        return cls(reader, writer)

    def drop(self) -> None:
        """Reset the connection."""
        self.writer.transport.abort()


class Gauge:
    """The replica's own count of running slots, over one kept connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls) -> Gauge:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", PORT, limit=2**20))

    async def read(self) -> int:
        """Return how many slots run now."""
        self.writer.write(f"GET {DIRECT}/metrics HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        text = (await self.reader.readexactly(length)).decode()
        found = re.search(r"^headpond_running\{.*\} ([\d.]+)$", text, re.M)
        if found is None:
            raise RuntimeError("no gauge")
        return int(float(found[1]))


async def measure(prefix: str) -> list[float]:
    """Return seconds from drop to release, round by round."""
    gauge = await Gauge.open()
    times = []
    for _ in range(ROUNDS):
        beside = [await Stream.open(DIRECT, 400) for _ in range(BESIDE)]
        stream = await Stream.open(prefix, 400)
        running = await gauge.read()
        dropped = time.perf_counter()
        stream.drop()
        while await gauge.read() >= running:
            await asyncio.sleep(READ_EVERY_S)
        times.append(time.perf_counter() - dropped)
        for other in beside:
            other.drop()
        while await gauge.read():
            await asyncio.sleep(READ_EVERY_S)
    return times


def case(path: str, times: Sequence[float], server: Server) -> dict[str, object]:
    """Return the results entry of one path."""
    return {
        "case": f"drop to release, {BESIDE} streams beside, {path}",
        "unit": "ms (median)",
        "ours": 1e3 * median(times),
        "peers": {},
        "ratio": {},
        "spread": {"p95_ms": 1e3 * quantile(times, 0.95), "max_ms": 1e3 * max(times)},
        "cpu_per_unit": None,
        "pss_bytes": server.pss_bytes(),
        "floor": None,
        "quality": "running slots read from the replica's own metrics",
    }


def main() -> None:
    before = machine()
    server = Server(
        name="cancellation",
        command=[sys.executable, "-m", "headpond.cli", "up", "--port", str(PORT)],
        port=PORT,
        ready_path="/readyz",
    )
    server.start()
    try:
        times = {"direct": asyncio.run(measure(DIRECT)), "routed": asyncio.run(measure(""))}
        cases = [case(path, seconds, server) for path, seconds in times.items()]
    finally:
        server.stop()
    notes = [
        f"{path}: p95 {1e3 * quantile(seconds, 0.95):.0f} ms, most {1e3 * max(seconds):.0f} ms "
        f"of {ROUNDS}"
        for path, seconds in times.items()
    ]
    document = {
        "machine": before,
        "versions": versions("ray", "torch", "transformers"),
        "rounds": ROUNDS,
        "cases": cases,
        "notes": notes,
    }
    print(write_results("cancellation", document), notes)


if __name__ == "__main__":
    main()
