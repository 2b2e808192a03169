"""The demo bundle over HTTP: the dialect, the real loop, the engine, and the picture."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator

import pytest

from headpond.backend import LocalBackend
from headpond.http.app import ASGIApp, build_app
from headpond.scheduling.loop import Loop, loop_for
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.testing.asgi import AsgiRequest
from headpond_workloads.diffusion.items import Picture
from headpond_workloads.diffusion.record import record
from headpond_workloads.diffusion.schema import GENERATIONS_PATH
from workloads.diffusion.digits import digits, engine, paint

ALIAS = "digits"


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    manifest = digits().manifest
    metrics = Metrics(record, bundle=manifest.ref, model=ALIAS)
    found = loop_for(
        record,
        engine(),
        record.bind(engine().symbols, "float32"),
        state_bytes=2**26,
        bundle=manifest.ref,
        observer=metrics.observe,
    )
    found.start()
    try:
        yield found
    finally:
        await found.stop(5.0)


@pytest.fixture
def app(loop: Loop) -> ASGIApp:
    manifest = digits().manifest
    metrics = Metrics(record, bundle=manifest.ref, model=ALIAS)
    backend = LocalBackend(
        record=record, manifest=manifest, alias=ALIAS, loop=loop, metrics_source=metrics
    )
    return build_app([record], backend, Settings())


async def ask(app: ASGIApp, **fields: object) -> list[bytes]:
    """Return the files of the pictures of one call."""
    body = json.dumps({"model": ALIAS, "prompt": "a red seven", **fields}).encode()
    answer = await AsgiRequest(path=GENERATIONS_PATH, parts=[body]).run(app)
    assert answer.status == 200, answer.body
    return [b64decode(each["b64_json"]) for each in json.loads(answer.body)["data"]]


async def test_pictures_over_http_are_the_engines_own(app: ASGIApp, loop: Loop) -> None:
    expected = [
        paint(engine(), Picture(prompt="a red seven", seed=7 + at))[0].file for at in range(3)
    ]
    others = [ask(app, seed=seed, num_inference_steps=5 + seed) for seed in range(6)]
    three, *_ = await asyncio.gather(ask(app, seed=7, n=3), *others)
    assert three == expected
    assert loop.snapshot().state_held_bytes == 0
    assert loop.snapshot().running_slots == 0
