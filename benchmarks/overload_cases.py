"""What each workload is asked for while it has too much to do, and when an answer counts.

A request counts when its answer comes whole within the workload's own bounds (its record's
`throughput`), or, where the record bounds nothing, within the deadline that it carries. Requests
of a case cost about the same, so that requests can be counted.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Protocol

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from embedding import texts
from formed import HERE
from goodput import is_good
from headpond.bundle.store import open_bundle
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.vision.record import record as vision
from load import Connection, Target
from streams import Ask, stream
from vision import BOUNDARY, photos

GRACE_S = 2.0
"""Callers leave so long after their deadline."""

REFUSED = frozenset({408, 429, 503})


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who asks, and where.

    Attributes:
        port: On the loopback.
        prefix: Before every path: nothing at the router, else the model's own.
        key: Whose requests these are.
        deadline_s: What each may take.
    """

    port: int
    prefix: str
    key: str
    deadline_s: float

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        deadline_ms = str(round(self.deadline_s * 1e3))
        return {"authorization": f"Bearer {self.key}", "x-headpond-deadline-ms": deadline_ms}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one request saw; times are seconds of `time.perf_counter`.

    Attributes:
        status: 0 when there was no answer.
        good: Whether it came whole, within the bounds.
        retry_after_s: What a refusal said; NaN where it said nothing.
        error: What went wrong, other than a refusal.
    """

    sent_s: float
    ended_s: float
    status: int
    good: bool = False
    retry_after_s: float = math.nan
    error: str | None = None

    @property
    def took_s(self) -> float:
        """From the first byte sent to the last one read."""
        return self.ended_s - self.sent_s


class Asking(Protocol):
    """Sends request number N of a case, and says what became of it."""

    async def __call__(self, number: int, caller: Caller) -> Seen: ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """One workload under load.

    Attributes:
        model: Its alias.
        args: What its application is started with.
        clients: Of the closed loop that measures capacity.
        deadline_s: What a request may take; callers of the closed loop have a minute more.
        settle_s: Arrivals of so long come before the ones that are counted.
        asking: Makes what asks; called once the server runs.
        live: Whether requests are spoken in real time, so that nobody ever waits for a place.
    """

    name: str
    model: str
    args: Mapping[str, object]
    clients: int
    deadline_s: float
    settle_s: float
    asking: Callable[[], Asking]
    live: bool = False


@dataclass(kw_only=True)
class Bodies:
    """Asks by whole bodies over connections that are kept, one for each request under way."""

    path: str
    bodies: Sequence[bytes]
    within_s: float
    content_type: str = "application/json"
    _idle: list[Connection] = field(default_factory=list)

    async def __call__(self, number: int, caller: Caller) -> Seen:
        target = Target(
            port=caller.port,
            path=caller.prefix + self.path,
            body=self.bodies[number % len(self.bodies)],
            content_type=self.content_type,
            headers=caller.headers,
        )
        connection = self._idle.pop() if self._idle else Connection(target)
        sent_s = time.perf_counter()
        try:
            async with asyncio.timeout(caller.deadline_s + GRACE_S):
                sample = await connection.send(target.request())
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            connection.close()
            return Seen(sent_s=sent_s, ended_s=time.perf_counter(), status=0, error=repr(error))
        except asyncio.CancelledError:
            connection.close()
            raise
        self._idle.append(connection)
        ended_s = time.perf_counter()
        return Seen(
            sent_s=sent_s,
            ended_s=ended_s,
            status=sample.status,
            good=sample.status == 200 and ended_s - sent_s <= self.within_s,
            retry_after_s=float(sample.headers.get("retry-after", "nan")),
            error=None if sample.status in {200, *REFUSED} else sample.body[:200].decode(),
        )


async def _generate(number: int, caller: Caller, *, prompts: Sequence[str]) -> Seen:
    body = {
        "model": "smollm2-135m",
        "prompt": prompts[number % len(prompts)],
        "max_tokens": 24 + 8 * (number % 4),
        "stream": True,
        "temperature": 0,
        "ignore_eos": True,
    }
    ask = Ask(
        port=caller.port, path=f"{caller.prefix}/v1/completions", body=body, headers=caller.headers
    )
    seen = await stream(ask, timeout_s=caller.deadline_s + GRACE_S)
    expected = seen.status in REFUSED or "deadline" in (seen.error or "")
    return Seen(
        sent_s=seen.sent,
        ended_s=seen.ended,
        status=408 if seen.status == 200 and expected else seen.status,
        good=is_good(seen),
        retry_after_s=float(seen.headers.get("retry-after", "nan")),
        error=None if expected else seen.error,
    )


_RATE_HZ, _PIECE_S = 16_000, 0.16


async def _speak(number: int, caller: Caller, *, sound: bytes) -> Seen:
    """Speak a sentence in real time; good is a final text within the bound on gaps."""
    del number
    address = f"ws://127.0.0.1:{caller.port}{caller.prefix}/v1/realtime?intent=transcription"
    began_s = time.perf_counter()
    state = {"sent_s": began_s, "spoken_s": math.inf}

    def seen(status: int, **more: object) -> Seen:
        return Seen(sent_s=state["sent_s"], ended_s=time.perf_counter(), status=status, **more)  # type: ignore[arg-type]

    try:
        async with (
            asyncio.timeout(caller.deadline_s + GRACE_S),
            connect(
                f"{address}&model=streaming-words",
                additional_headers={"authorization": caller.headers["authorization"]},
                ping_interval=None,
                compression=None,
            ) as socket,
        ):
            form = {"type": "audio/pcm", "rate": 24_000}
            audio = {"input": {"format": form, "turn_detection": None}}
            session = {"type": "transcription", "audio": audio}
            await socket.send(json.dumps({"type": "session.update", "session": session}))
            speaking = asyncio.create_task(_send_sound(socket.send, sound, state))
            try:
                async for message in socket:
                    event = json.loads(message)
                    if event["type"] == "error":
                        error = event["error"]
                        refused = "retry_after_ms" in error
                        wait_s = error.get("retry_after_ms", math.nan) / 1e3
                        code = 503 if refused else 500
                        said = None if refused else str(error)
                        return seen(code, retry_after_s=wait_s, error=said)
                    if event["type"].endswith("transcription.completed"):
                        late_s = time.perf_counter() - state["spoken_s"]
                        return seen(200, good=late_s <= 2.0)
            finally:
                speaking.cancel()
    except InvalidStatus as refused:
        return seen(refused.response.status_code)
    except (TimeoutError, OSError, ConnectionClosed) as error:
        return seen(0, error=repr(error))
    return seen(0, error="the socket was closed")


async def _send_sound(send: Callable[[str], object], sound: bytes, state: dict[str, float]) -> None:
    begin_s, step = time.perf_counter(), 2 * round(24_000 * _PIECE_S)
    for number, at in enumerate(range(0, len(sound), step)):
        await asyncio.sleep(max(begin_s + number * _PIECE_S - time.perf_counter(), 0.0))
        if not number:
            state["sent_s"] = time.perf_counter()
        audio = b64encode(sound[at : at + step]).decode()
        await send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))  # type: ignore[misc]
    state["spoken_s"] = time.perf_counter()
    await send('{"type": "input_audio_buffer.commit"}')  # type: ignore[misc]


@cache
def _recording() -> bytes:
    bundle = open_bundle(HERE.parent / "bundles/streaming-words")
    return b64decode(str(bundle.manifest.fixtures[0].given["audio"]))


def _spoken() -> bytes:
    import numpy as np  # noqa: PLC0415
    import soxr  # type: ignore[import-untyped]  # noqa: PLC0415

    from headpond_workloads.speech.engine.front.decoding import Bounds, decode  # noqa: PLC0415

    samples = soxr.resample(
        decode(_recording(), _RATE_HZ, Bounds(duration_ms=60_000)), _RATE_HZ, 24_000
    )
    return bytes((samples * 32_767.0).clip(-32_768, 32_767).astype(np.dtype("<i2")).tobytes())


def _form(fields: Mapping[str, str], name: str, file: str, kind: str, content: bytes) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in fields.items()
    ]
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n'
        f"Content-Type: {kind}\r\n\r\n"
    )
    return "".join(parts).encode() + head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


_FORM = f"multipart/form-data; boundary={BOUNDARY}"


def _embed() -> Asking:
    bodies = [
        json.dumps({"model": "all-minilm-l6-v2", "input": texts(8, seed, (20, 30))}).encode()
        for seed in range(64)
    ]
    bounds = embedding.throughput[0].bounds
    return Bodies(path="/v1/embeddings", bodies=bodies, within_s=bounds.total_s or math.inf)


def _rerank() -> Asking:
    queries, documents = texts(64, 11, (8, 12)), texts(64 * 8, 12, (30, 50))
    bodies = [
        json.dumps(
            {"model": "minilm-maxsim", "query": query, "documents": documents[8 * at : 8 * at + 8]}
        ).encode()
        for at, query in enumerate(queries)
    ]
    bounds = embedding.throughput[0].bounds
    return Bodies(path="/v1/rerank", bodies=bodies, within_s=bounds.total_s or math.inf)


def _classify() -> Asking:
    bodies = [
        _form({"model": "efficientnet-lite0"}, "image", "a.jpg", "image/jpeg", photo)
        for photo in photos((640, 480), 32)
    ]
    bounds = vision.throughput[0].bounds
    return Bodies(
        path="/v1/images/classifications",
        bodies=bodies,
        within_s=bounds.total_s or math.inf,
        content_type=_FORM,
    )


def _transcribe() -> Asking:
    body = _form({"model": "whisper-tiny-en"}, "file", "a.wav", "audio/wav", _recording())
    return Bodies(
        path="/v1/audio/transcriptions", bodies=[body], within_s=math.inf, content_type=_FORM
    )


def _paint() -> Asking:
    chance = random.Random(3)  # noqa: S311
    bodies = [
        json.dumps(
            {
                "model": "tinysd-digits",
                "prompt": f"a {chance.choice(('red', 'green', 'blue'))} {digit}",
                "seed": seed,
                "num_inference_steps": 10,
            }
        ).encode()
        for seed, digit in enumerate(("one", "two", "three", "seven", "nine") * 8)
    ]
    return Bodies(path="/v1/images/generations", bodies=bodies, within_s=math.inf)


def _complete() -> Asking:
    return partial(_generate, prompts=texts(64, 21, (60, 90)))


def _listen() -> Asking:
    return partial(_speak, sound=_spoken())


CASES = (
    Case(
        name="generation",
        model="smollm2-135m",
        args={
            "bundle": "bundles/smollm2-135m-instruct",
            "state_bytes": "256MiB",
            "max_slots": 16,
            "max_wait_s": 1.5,
        },
        clients=16,
        deadline_s=20.0,
        settle_s=4.0,
        asking=_complete,
    ),
    Case(
        name="embedding",
        model="all-minilm-l6-v2",
        args={"bundle": "bundles/all-minilm-l6-v2"},
        clients=32,
        deadline_s=2.0,
        settle_s=3.0,
        asking=_embed,
    ),
    Case(
        name="reranking",
        model="minilm-maxsim",
        args={"bundle": "bundles/minilm-maxsim"},
        clients=16,
        deadline_s=2.0,
        settle_s=3.0,
        asking=_rerank,
    ),
    Case(
        name="vision",
        model="efficientnet-lite0",
        args={"bundle": "bundles/efficientnet-lite0"},
        clients=32,
        deadline_s=1.0,
        settle_s=2.0,
        asking=_classify,
    ),
    Case(
        name="speech files",
        model="whisper-tiny-en",
        args={"bundle": "bundles/whisper-tiny-en", "state_bytes": "64MiB", "max_slots": 16},
        clients=16,
        deadline_s=5.0,
        settle_s=5.0,
        asking=_transcribe,
    ),
    Case(
        name="speech streams",
        model="streaming-words",
        args={
            "bundle": "bundles/streaming-words",
            "state_bytes": "64MiB",
            "max_slots": 16,
            "threads": 1,
        },
        clients=16,
        deadline_s=30.0,
        settle_s=5.0,
        asking=_listen,
        live=True,
    ),
    Case(
        name="diffusion",
        model="tinysd-digits",
        args={
            "bundle": "bundles/tinysd-digits",
            "state_bytes": "64MiB",
            "max_slots": 16,
            "threads": 1,
        },
        clients=16,
        deadline_s=4.0,
        settle_s=4.0,
        asking=_paint,
    ),
)
