"""The whole path: files over HTTP and live streams through the real loop to the engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import numpy as np
import pytest

from headpond.backend import LocalBackend
from headpond.bundle.manifest import Manifest
from headpond.call import Call, Done, Output
from headpond.http.app import build_app
from headpond.scheduling.loop import Loop, loop_for
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.testing.asgi import AsgiRequest
from headpond_workloads.speech.items import (
    Encoding,
    End,
    Endpointing,
    Final,
    Format,
    Listening,
    Partial,
    Sound,
    Stream,
)
from headpond_workloads.speech.record import record
from headpond_workloads.speech.schema import TRANSCRIPTIONS_PATH
from workloads.speech import sounds
from workloads.speech.conftest import CHUNK_MS, RATE_HZ, Counter, engine_with, loud, quiet

SYMBOLS = {"chunk_ms": CHUNK_MS, "sample_rate_hz": RATE_HZ, "state_bytes": 100, "weight_bytes": 1}
LISTENING = Listening(endpointing=Endpointing(prefix_padding_ms=0, silence_ms=192))
MANIFEST = Manifest.parse(
    {
        "name": "ears",
        "version": "1.0.0",
        "workload": "speech",
        "summary": "Says how long speech is.",
        "licence": "Apache-2.0",
        "artifacts": [{"name": "weights", "source": "file:w.onnx", "bytes": 1, "sha256": "0" * 64}],
        "execution": {"architecture": "OnnxTransducer", "dtype": "float32"},
    }
)


METRICS = Metrics(record, bundle=MANIFEST.ref, model="ears")


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    found = loop_for(
        record,
        engine_with(Counter()),
        record.bind(SYMBOLS, "float32"),
        state_bytes=2**24,
        max_slots=16,
        bundle=MANIFEST.ref,
        observer=METRICS.observe,
    )
    found.start()
    try:
        yield found
    finally:
        await found.stop(5.0)


def call(number: int) -> Call:
    form = Format(encoding=Encoding.FLOAT32, rate_hz=RATE_HZ)
    return Call(
        request_id=f"stream-{number}",
        tenant="ada",
        workload="speech",
        model="ears",
        items=(Stream(form, LISTENING),),
        deadline_s=60.0,
        stream=True,
    )


async def spoken(loop: Loop, number: int, speech_ms: int) -> tuple[list[object], Done]:
    """Speak for a while, in pieces of odd sizes; return what was said of it."""
    answer = await loop.submit(call(number))
    sound = np.concatenate((quiet(320), loud(speech_ms), quiet(320))).tobytes()

    async def feed() -> None:
        step = 4 * (300 + 77 * number) + 1
        for at in range(0, len(sound), step):
            piece = sound[at : at + step]
            await answer.feed(Sound(piece), len(piece) * 1000 // (4 * RATE_HZ))
        await answer.feed(End(), 0)

    feeding = asyncio.create_task(feed())
    payloads: list[object] = []
    done: Done | None = None
    async for batch in answer.batches():
        for event in batch:
            if isinstance(event, Output):
                payloads.append(event.payload)
            elif isinstance(event, Done):
                done = event
    await feeding
    assert done is not None
    return payloads, done


async def test_streams_are_heard_together_while_they_are_fed(loop: Loop) -> None:
    lengths = [480, 960, 1440, 480]
    heard = await asyncio.gather(*(spoken(loop, at, ms) for at, ms in enumerate(lengths)))
    for (payloads, done), ms in zip(heard, lengths, strict=True):
        (final,) = [each for each in payloads if isinstance(each, Final)]
        assert final.text == f"{ms + 192} ms"
        assert any(isinstance(each, Partial) for each in payloads)
        assert done.work["audio_ms"] == 320 + ms + 320


async def test_a_stream_that_is_left_leaves_nothing_behind(loop: Loop) -> None:
    answer = await loop.submit(call(0))
    await answer.feed(Sound(loud(960).tobytes()), 960)
    await answer.close()
    payloads, _ = await spoken(loop, 1, 480)
    assert [each.text for each in payloads if isinstance(each, Final)] == ["672 ms"]


async def test_sound_that_is_too_short_for_a_step_is_not_behind(loop: Loop) -> None:
    answer = await loop.submit(call(0))
    half_ms = CHUNK_MS // 2
    await answer.feed(Sound(loud(3 * CHUNK_MS + half_ms).tobytes()), 3 * CHUNK_MS + half_ms)
    assert await anext(answer.batches()), "it was heard"
    async with asyncio.timeout(5):
        while answer.waiting_units:  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.001)
    await answer.close()


async def test_a_file_is_written_down_over_http(loop: Loop) -> None:
    backend = LocalBackend(
        record=record, manifest=MANIFEST, alias="ears", loop=loop, metrics_source=METRICS
    )
    app = build_app([record], backend, Settings())
    samples = np.concatenate((quiet(992), loud(992), quiet(992))).astype(np.float64)
    file = sounds.wav(sounds.written(samples, sounds.PCM, 16), rate_hz=RATE_HZ)
    body = (
        b'--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\nears\r\n'
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        + file
        + b"\r\n--edge--\r\n"
    )
    request = AsgiRequest(
        path=TRANSCRIPTIONS_PATH,
        parts=[body],
        headers={"content-type": "multipart/form-data; boundary=edge"},
    )
    await request.run(app)
    assert request.status == 200
    answer = json.loads(request.body)
    assert answer["text"].endswith(" ms")
    assert request.answer_headers["x-headpond-work"] == "audio_ms=2976"
