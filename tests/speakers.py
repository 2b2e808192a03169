"""People who speak to a platform: the sentence of the bundles, over `/v1/realtime`."""

from __future__ import annotations

import asyncio
import io
import json
import re
import wave
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx2
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from headpond.bundle.store import open_bundle
from headpond_workloads.speech.engine.front.decoding import Bounds, decode
from testbed import KEY, ROOT, Platform

RATE_HZ = 16_000
BYTES_PER_MS = 2 * RATE_HZ // 1000
AUTH = {"authorization": f"Bearer {KEY}"}
FORMAT = {"type": "audio/pcm", "rate": RATE_HZ}

_ITEM = "conversation.item.input_audio_transcription"
DELTA, COMPLETED, FAILED = f"{_ITEM}.delta", f"{_ITEM}.completed", f"{_ITEM}.failed"
ACKNOWLEDGED = "input_audio_buffer.acknowledged"

Event = dict[str, Any]


@cache
def recording(fixture: int = 0) -> bytes:
    """Return a recording of somebody who speaks, as a file: a fixture of the streaming bundle."""
    bundle = open_bundle(ROOT / "bundles/streaming-words")
    given = bundle.manifest.fixtures[fixture].given["audio"]
    assert isinstance(given, str)
    return b64decode(given)


@cache
def speech(fixture: int = 0, *, rest_ms: int = 1200) -> bytes:
    """Return the same as PCM16 at `RATE_HZ`, with silence behind it that ends the utterance."""
    samples = decode(recording(fixture), RATE_HZ, Bounds(duration_ms=60_000))
    rest = np.zeros(rest_ms * RATE_HZ // 1000, np.float32)
    sound = np.concatenate((samples, rest)) * 32_767.0
    return sound.clip(-32_768, 32_767).astype("<i2").tobytes()


def as_wav(sound: bytes) -> bytes:
    """Return PCM16 at `RATE_HZ` as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE_HZ)
        written.writeframes(sound)
    return file.getvalue()


def pieces(sound: bytes, ms: int = 40) -> Iterator[bytes]:
    """Iterate over equal pieces."""
    step = ms * BYTES_PER_MS
    for at in range(0, len(sound), step):
        yield sound[at : at + step]


class Speaker:
    """One client.

    Attributes:
        events: Everything that was said to it.
    """

    def __init__(self, socket: ClientConnection) -> None:
        """Speak over an open socket."""
        self.socket = socket
        self.events: list[Event] = []

    async def send(self, kind: str, **fields: object) -> None:
        """Send an event."""
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def say(self, sound: bytes, sequence: int | None = None) -> None:
        """Append sound."""
        fields = {} if sequence is None else {"sequence": sequence}
        audio = b64encode(sound).decode()
        await self.send("input_audio_buffer.append", audio=audio, **fields)

    async def hear(self) -> Event:
        """Return the next event."""
        async with asyncio.timeout(30):
            event: Event = json.loads(await self.socket.recv())
        self.events.append(event)
        return event

    async def until(self, *kinds: str) -> Event:
        """Return the first event of these kinds, when it comes."""
        while (event := await self.hear())["type"] not in kinds:
            pass
        return event

    def cut(self) -> None:
        """Be cut off: nothing is said of it, and nothing that is on its way comes."""
        self.socket.transport.abort()

    @property
    def finals(self) -> list[str]:
        """The final texts that were heard."""
        return [each["transcript"] for each in self.events if each["type"] == COMPLETED]


@asynccontextmanager
async def speaker(
    platform: Platform, model: str, *, door: str = "routed", **query: str
) -> AsyncIterator[Speaker]:
    """Connect somebody whose sound is PCM16 at `RATE_HZ`, or who comes back to a session."""
    base = platform.base_url if door == "routed" else platform.direct(model)
    fields = query or {"intent": "transcription", "model": model}
    asked = "&".join(f"{name}={value}" for name, value in fields.items())
    url = f"{base.replace('http', 'ws', 1)}/v1/realtime?{asked}"
    # Pongs wait behind what was sent, so a library that insists on them cuts fast senders off.
    async with connect(url, additional_headers=AUTH, ping_interval=None) as socket:
        found = Speaker(socket)
        if not query:
            await found.until("session.created")
            session = {"type": "transcription", "audio": {"input": {"format": FORMAT}}}
            await found.send("session.update", session=session)
            await found.until("session.updated")
        yield found


async def gauge(platform: Platform, name: str, *, model: str | None = None) -> float:
    """Return the sum of a metric: of the router's process, or of a model's own replicas."""
    base = platform.base_url if model is None else platform.direct(model)
    async with httpx2.AsyncClient(timeout=30) as client:
        answer = await client.get(f"{base}/metrics", headers=AUTH)
    values = re.findall(rf"^{name}(?:\{{.*\}})? ([\d.e+]+)$", answer.text, re.M)
    return sum(map(float, values))
