"""Callers who ask all the time while something is broken, and what each of them got."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import httpx2
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

EVERY_S = 0.1
"""Each caller asks so often, whether or not it was answered."""

WELL_S = 1.0
"""An answer that takes longer is not what a caller expects of so short a call."""

PATIENCE_S = 40.0
"""What callers wait; longer than the workload's own deadline of 30 s."""

LONG = 4
"""So many long streams are under way when a fault strikes."""

OK, CUT, SILENT, UNREACHED = "ok", "cut", "no answer", "no connection"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one request came to.

    Attributes:
        caller: Who sent it.
        sent_s: When, after the fault; negative before it.
        took_s: How long it took.
        outcome: `ok`, `503 model_not_ready`, `event worker_lost`, `cut`, ...
    """

    caller: str
    sent_s: float
    took_s: float
    outcome: str

    @property
    def well(self) -> bool:
        """Whether it was answered, and in time."""
        return self.outcome == OK and self.took_s < WELL_S


@dataclass(frozen=True, kw_only=True)
class Caller:
    """One way to ask: `name` is the row in the account, `path` where, `body` what."""

    name: str
    path: str
    body: dict[str, object]

    async def ask(self, client: httpx2.AsyncClient) -> str:
        """Send one request; return what it came to."""
        try:
            async with client.stream("POST", self.path, json=self.body) as answer:
                content = (await answer.aread()).decode()
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return UNREACHED
        except httpx2.TimeoutException:
            return SILENT
        except httpx2.HTTPError:
            return CUT
        return came_to(answer.status_code, content, "[DONE]" if self.body.get("stream") else "")


def came_to(status: int, content: str, ending: str) -> str:
    """Return what an answer was: `ok`, a status with a code, an error event, or `cut`.

    Args:
        status: Of the answer.
        content: All of it.
        ending: What the last event of a stream holds that ends well; nothing for whole answers.
    """
    if status != httpx2.codes.OK:
        return f"{status} {_code(content)}"
    return _ending(content, ending) if ending else OK


def _code(content: str) -> str:
    """Return the code of an error, or its first words where it is none of ours."""
    try:
        return str(json.loads(content)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return repr(content[:30])


def _ending(content: str, ending: str) -> str:
    data = [line for line in content.splitlines() if line.startswith("data: ")]
    last = data[-1].removeprefix("data: ") if data else ""
    if ending in last:
        return OK
    return f"event {_code(last)}" if '"error"' in last else CUT


async def listen(base_url: str, model: str, until_s: float) -> str:
    """Keep a WebSocket open and speak silence; return how it ended."""
    url = f"{base_url.replace('http', 'ws', 1)}/v1/realtime?intent=transcription&model={model}"
    silence = b64encode(bytes(4800)).decode()
    try:
        async with connect(url, ping_interval=None) as socket:
            while time.monotonic() < until_s:
                await socket.send(
                    json.dumps({"type": "input_audio_buffer.append", "audio": silence})
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(socket.recv(), EVERY_S)
    except ConnectionClosed as closed:
        return f"closed {closed.rcvd.code}" if closed.rcvd else CUT
    except (InvalidHandshake, OSError) as error:
        return type(error).__name__
    return OK


@dataclass(kw_only=True)
class Watch:
    """Callers around one fault.

    Attributes:
        base_url: The platform's.
        callers: Who ask again and again.
        long: A long stream, of which some are under way when the fault strikes.
        socket_model: Who is spoken to over a WebSocket; None for nobody.
        seen: What callers got.
    """

    base_url: str
    callers: Sequence[Caller]
    long: Caller
    socket_model: str | None = None
    seen: list[Seen] = field(default_factory=list)
    struck_s: float = 0.0

    async def around(self, strike: Callable[[], None], before_s: float, after_s: float) -> None:
        """Ask for a while, let the fault strike, and go on asking."""
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=4)
        async with (
            httpx2.AsyncClient(base_url=self.base_url, timeout=PATIENCE_S, limits=limits) as client,
            asyncio.TaskGroup() as group,
        ):
            self.struck_s = time.monotonic() + before_s
            until_s = self.struck_s + after_s
            for _ in range(LONG):
                group.create_task(self._one(client, self.long))
            if self.socket_model is not None:
                group.create_task(self._socket(self.socket_model, until_s))
            for caller in self.callers:
                group.create_task(self._keep(client, caller, until_s))
            await asyncio.sleep(before_s)
            await asyncio.to_thread(strike)

    async def _keep(self, client: httpx2.AsyncClient, caller: Caller, until_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < until_s:
                group.create_task(self._one(client, caller))
                await asyncio.sleep(EVERY_S)

    async def _one(self, client: httpx2.AsyncClient, caller: Caller) -> None:
        sent_s = time.monotonic()
        self._note(caller.name, sent_s, await caller.ask(client))

    async def _socket(self, model: str, until_s: float) -> None:
        sent_s = time.monotonic()
        self._note("socket", sent_s, await listen(self.base_url, model, until_s))

    def _note(self, caller: str, sent_s: float, outcome: str) -> None:
        took_s = time.monotonic() - sent_s
        self.seen.append(
            Seen(caller=caller, sent_s=sent_s - self.struck_s, took_s=took_s, outcome=outcome)
        )

    def outcomes(self, callers: Sequence[str], *, under_way: bool) -> Counter[str]:
        """Return what callers got of what was under way when the fault struck, or sent after."""
        return Counter(
            each.outcome
            for each in self.seen
            if each.caller in callers
            and (each.sent_s + each.took_s > 0 > each.sent_s if under_way else each.sent_s >= 0)
        )

    def unwell_s(self, callers: Sequence[str]) -> float:
        """Return when the last call was sent, after the fault, that was not answered well."""
        return max(
            (each.sent_s for each in self.seen if each.caller in callers and not each.well),
            default=0.0,
        )

    def slowest_s(self, callers: Sequence[str]) -> float:
        """Return the longest a caller waited for whatever it got."""
        return max(
            (each.took_s for each in self.seen if each.caller in callers and each.sent_s > -1),
            default=0.0,
        )
