"""Users of a platform who ask, leave early and hurry, and what each request of theirs came to."""

from __future__ import annotations

import asyncio
import json
import random
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from fault_probe import CUT, OK, SILENT, UNREACHED, came_to
from soak_kinds import SPEECH, Kind
from speech_socket import SENT_HZ

LEFT = "left"
"""The caller hung up before all of the answer had come."""

LEAVE, HURRY = 0.2, 0.03
"""So many leave early, or give the server `HURRY_MS`."""

HURRY_MS = "30"
PATIENCE_S = 90.0
PIECE_S = 0.1


@dataclass(kw_only=True)
class Sent:
    """One request, or session, as its caller knows it.

    Attributes:
        identifier: Its `x-request-id`.
        workload: Who serves it.
        model: Who is asked.
        began_s: When, on the monotonic clock.
        ended_s: When its caller had the end of it, or hung up.
        outcome: `ok`, `left`, `503 overloaded`, `event worker_lost`, ...
        session: Whether it is a WebSocket, whose calls are requests of their own.
    """

    identifier: str
    workload: str
    model: str
    began_s: float
    ended_s: float = float("inf")
    outcome: str = LEFT
    session: bool = False


@dataclass(kw_only=True)
class Traffic:
    """All users of a platform.

    Attributes:
        base_url: The platform's.
        kinds: Ways to ask over HTTP.
        spoken: What speakers say, as PCM16 at `SENT_HZ`; two at once, to every model.
        sent: What was sent.
    """

    base_url: str
    kinds: Sequence[Kind]
    spoken: bytes
    sent: list[Sent] = field(default_factory=list)
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Ask until `stop`, and return when all that was asked is over."""
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8)
        async with (
            httpx2.AsyncClient(base_url=self.base_url, timeout=PATIENCE_S, limits=limits) as client,
            asyncio.TaskGroup() as group,
        ):
            for kind in self.kinds:
                for user in range(kind.users):
                    chance = random.Random(f"{kind.name} {user}")  # noqa: S311 - no secret
                    group.create_task(self._use(client, kind, chance))
            for model in SPEECH:
                group.create_task(self._speak(model, random.Random(model)))  # noqa: S311

    def stop(self) -> None:
        """Begin nothing more."""
        self._over.set()

    async def wait(self, seconds: float) -> bool:
        """Wait so long, but not beyond `stop`; say whether to go on."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)
        return not self._over.is_set()

    @contextmanager
    def noted(self, name: str, workload: str, model: str) -> Iterator[Sent]:
        """Note one request, whatever becomes of it."""
        each = Sent(
            identifier=f"soak:{name}:{len(self.sent)}",
            workload=workload,
            model=model,
            began_s=time.monotonic(),
        )
        self.sent.append(each)
        yield each
        each.ended_s = time.monotonic()

    async def _use(self, client: httpx2.AsyncClient, kind: Kind, chance: random.Random) -> None:
        while await self.wait(chance.expovariate(1 / kind.pause_s)):
            with self.noted(kind.name, kind.workload, kind.model) as each:
                each.outcome = await _ask(client, kind, chance, each.identifier)

    async def _speak(self, model: str, chance: random.Random) -> None:
        while await self.wait(chance.expovariate(1.0)):
            with self.noted("speaker", "speech", model) as each:
                each.session = True
                each.outcome = await self._session(model, chance, each.identifier)

    async def _session(self, model: str, chance: random.Random, identifier: str) -> str:
        """Say what is to be said, in time; sometimes be cut off amid it, and not come back."""
        url = f"{self.base_url.replace('http', 'ws', 1)}/v1/realtime?intent=transcription"
        step = round(2 * SENT_HZ * PIECE_S)
        pieces = [self.spoken[at : at + step] for at in range(0, len(self.spoken), step)]
        said = chance.randrange(len(pieces)) if chance.random() < LEAVE else len(pieces)
        headers = {"x-request-id": identifier}
        try:
            async with connect(
                f"{url}&model={model}", additional_headers=headers, ping_interval=None
            ) as socket:
                listening = asyncio.create_task(_heard(socket))
                await _say(socket, pieces[:said], until=listening)
                if said == len(pieces):
                    return await listening
                listening.cancel()
                socket.transport.abort()
                return LEFT
        except ConnectionClosed as closed:
            return f"closed {closed.rcvd.code}" if closed.rcvd else CUT
        except (InvalidHandshake, OSError) as error:
            return type(error).__name__


async def _ask(
    client: httpx2.AsyncClient, kind: Kind, chance: random.Random, identifier: str
) -> str:
    """Send one request; return what it came to."""
    headers = {"x-request-id": identifier}
    if chance.random() < HURRY:
        headers["x-headpond-deadline-ms"] = HURRY_MS
    leave_s = chance.uniform(0.01, kind.takes_s) if chance.random() < LEAVE else None
    try:
        async with (
            asyncio.timeout(leave_s),
            client.stream("POST", kind.path, headers=headers, **kind.content(chance)) as answer,  # type: ignore[arg-type]
        ):
            content = (await answer.aread()).decode()
    except TimeoutError:
        return LEFT
    except (httpx2.ConnectError, httpx2.ConnectTimeout):
        return UNREACHED
    except httpx2.TimeoutException:
        return SILENT
    except httpx2.HTTPError:
        return CUT
    return came_to(answer.status_code, content, kind.ending)


async def _say(socket: ClientConnection, pieces: Sequence[bytes], until: asyncio.Task[str]) -> None:
    """Send sound in time, and commit it."""
    turns = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}
    await _send(socket, "session.update", session=turns)
    for piece in pieces:
        if until.done():
            return
        audio = b64encode(piece).decode()
        await _send(socket, "input_audio_buffer.append", audio=audio)
        await asyncio.sleep(PIECE_S)
    await _send(socket, "input_audio_buffer.commit")


async def _send(socket: ClientConnection, kind: str, **fields: object) -> None:
    await socket.send(json.dumps({"type": kind, **fields}))


async def _heard(socket: ClientConnection) -> str:
    """Read until the text is there, or an error."""
    async for message in socket:
        event = json.loads(message)
        if event["type"] == "error":
            return f"event {event['error']['code']}"
        if event["type"].endswith("transcription.completed"):
            return OK
    return CUT
