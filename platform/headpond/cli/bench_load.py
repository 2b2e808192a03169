"""Load for a server: calls at times of their own, and what became of each."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from random import Random

import httpx2

from headpond.client.config import ClientConfig

_TIMING = "server-timing"
_OK = 200


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is asked.

    Attributes:
        config: Where the server is, and who asks.
        path: The route.
        bodies: JSON of calls, asked one after the other and then again.
        patience_s: How long each caller waits for the end of its answer.
        deadline_s: What the server is told of that; None for nothing.
    """

    config: ClientConfig
    path: str
    bodies: Sequence[bytes]
    patience_s: float
    deadline_s: float | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers of every call."""
        headers = {**self.config.request_headers(), "content-type": "application/json"}
        if self.deadline_s is not None:
            headers["x-headpond-deadline-ms"] = str(round(self.deadline_s * 1000))
        return headers


@dataclass(kw_only=True, slots=True)
class Seen:
    """What became of one call.

    Attributes:
        status: Of the answer; 0 where none came.
        first_s: From sending to the first output.
        total_s: From sending to the end.
        outputs: How many events a stream had; 1 of a whole answer.
        work: What the server counted, by unit; of streams what it admitted.
        phases_ms: Where the server says the time went.
        error: What went wrong, of answers with the status 200, too.
    """

    status: int = 0
    first_s: float = 0.0
    total_s: float = 0.0
    outputs: int = 0
    work: Mapping[str, int] = field(default_factory=dict)
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None

    @property
    def gap_s(self) -> float:
        """The mean time between two outputs."""
        return (self.total_s - self.first_s) / max(1, self.outputs - 1)


class Load:
    """Sends calls over connections of its own; use it in an `async with`."""

    def __init__(self, target: Target) -> None:
        """Get ready to ask."""
        self._target = target
        self._headers = target.headers()
        self._bodies = cycle(target.bodies)
        unbounded = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx2.AsyncClient(limits=unbounded, timeout=None)

    async def __aenter__(self) -> Load:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def one(self) -> Seen:
        """Send a call and read its answer."""
        seen = Seen()
        sent_s = time.perf_counter()
        try:
            async with asyncio.timeout(self._target.patience_s):
                await self._read(seen, sent_s)
        except TimeoutError:
            seen.error = "no end of the answer in time"
        except (httpx2.RequestError, httpx2.StreamError) as error:
            seen.error = type(error).__name__
        seen.total_s = time.perf_counter() - sent_s
        return seen

    async def closed(self, callers: int, seconds: float) -> list[Seen]:
        """Let callers ask again as soon as they are answered, for a while."""
        found: list[Seen] = []
        until_s = time.perf_counter() + seconds

        async def caller() -> None:
            while time.perf_counter() < until_s:
                found.append(await self.one())

        await asyncio.gather(*(caller() for _ in range(callers)))
        return found

    async def open(self, rate: float, seconds: float, seed: int) -> list[Seen]:
        """Ask by a Poisson process, whatever became of the calls before.

        Args:
            rate: Calls a second.
            seconds: How long calls come; answers are then waited for.
            seed: Of the times.
        """
        chance = Random(seed)  # noqa: S311 - times, no secrets
        began_s = time.perf_counter()
        calls: list[asyncio.Task[Seen]] = []
        at_s = chance.expovariate(rate)
        while at_s < seconds:
            await asyncio.sleep(began_s + at_s - time.perf_counter())
            calls.append(asyncio.create_task(self.one()))
            at_s += chance.expovariate(rate)
        return await asyncio.gather(*calls)

    async def _read(self, seen: Seen, sent_s: float) -> None:
        url = f"{self._target.config.base_url}{self._target.path}"
        body = next(self._bodies)
        async with self._http.stream("POST", url, content=body, headers=self._headers) as response:
            seen.status = response.status_code
            seen.work = _numbers(response.headers.get("x-headpond-work", ""))
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                await self._read_events(seen, response, sent_s)
                return
            content = await response.aread()
            seen.first_s, seen.outputs = time.perf_counter() - sent_s, 1
            seen.phases_ms = _phases(response.headers.get(_TIMING, ""))
            if response.status_code != _OK:
                seen.error = _message(content)

    async def _read_events(self, seen: Seen, response: httpx2.Response, sent_s: float) -> None:
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                data = line.removeprefix("data:").strip()
                if not seen.outputs:
                    seen.first_s = time.perf_counter() - sent_s
                if data.startswith('{"error"'):
                    seen.error = _message(data.encode())
                seen.outputs += data != "[DONE]"
            elif line.startswith(f": {_TIMING}: "):
                seen.phases_ms = _phases(line.removeprefix(f": {_TIMING}: "))


def _numbers(header: str) -> dict[str, int]:
    pairs = (part.partition("=") for part in header.split(",") if "=" in part)
    return {name.strip(): int(value) for name, _, value in pairs if value.strip().isdigit()}


def _phases(header: str) -> dict[str, float]:
    pairs = (part.partition(";dur=") for part in header.split(",") if ";dur=" in part)
    return {name.strip(): float(value) for name, _, value in pairs}


def _message(content: bytes) -> str:
    try:
        return str(json.loads(content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "an answer that is none of the API's"
