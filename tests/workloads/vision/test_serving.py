"""The whole path: a request over HTTP, the real loop, the engine, and the answer."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from headpond.backend import LocalBackend
from headpond.engine import Json
from headpond.http.app import ASGIApp, build_app
from headpond.scheduling.loop import loop_for
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.testing.asgi import AsgiRequest
from headpond_workloads.vision.record import record
from headpond_workloads.vision.schema import CLASSIFICATIONS_PATH, ClassificationList
from workloads.images.pictures import png_of_zeros, saved, scene
from workloads.vision.conftest import LABELS

if TYPE_CHECKING:
    from workloads.vision.conftest import Tiny

PNG = saved(scene(), "PNG")
TEXT = b64encode(PNG).decode()
TEXTS = [b64encode(saved(scene(seed=at), "PNG")).decode() for at in range(5)]
BOMB = b64encode(png_of_zeros(12_000)).decode()


@pytest.fixture
async def app(averaging: Tiny) -> AsyncIterator[ASGIApp]:
    engine, manifest = averaging.engine(), averaging.bundle.manifest
    metrics = Metrics(record, bundle=manifest.ref, model="eyes")
    loop = loop_for(
        record,
        engine,
        record.bind(engine.symbols, "float32"),
        state_bytes=2**26,
        max_slots=16,
        bundle=manifest.ref,
        observer=metrics.observe,
    )
    loop.start()
    backend = LocalBackend(
        record=record, manifest=manifest, alias="eyes", loop=loop, metrics_source=metrics
    )
    try:
        yield build_app([record], backend, Settings())
    finally:
        await loop.stop(5.0)


async def post(
    app: ASGIApp, body: bytes, content_type: str = "application/json"
) -> tuple[AsgiRequest, Json]:
    """Return the answer, and its body as JSON."""
    request = AsgiRequest(
        path=CLASSIFICATIONS_PATH, parts=[body], headers={"content-type": content_type}
    )
    await request.run(app)
    return request, json.loads(request.body)


async def ask(app: ASGIApp, **fields: object) -> tuple[AsgiRequest, Json]:
    return await post(app, json.dumps({"model": "eyes", **fields}).encode())


def error_of(answer: Json) -> dict[str, Json]:
    assert isinstance(answer, dict)
    error = answer["error"]
    assert isinstance(error, dict)
    return error


async def test_an_image_becomes_its_classes(app: ASGIApp) -> None:
    request, answer = await ask(app, image=TEXT, top_k=2)
    assert request.status == 200
    seen = ClassificationList.model_validate(answer)
    (image,) = seen.data
    assert image.classes is not None
    assert len(image.classes) == 2
    assert image.classes[0].label in LABELS
    assert image.classes[0].score > image.classes[1].score
    assert seen.usage.pixels == 64 * 48
    assert request.answer_headers["x-headpond-work"] == "pixels=3072, images=1"
    timing = request.answer_headers["server-timing"]
    assert [part.split(";")[0] for part in timing.split(", ")][:5] == [
        phase.name for phase in record.phases
    ]


async def test_a_form_is_answered_as_json_is(app: ASGIApp) -> None:
    body = (
        b'--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\neyes\r\n'
        b'--edge\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
        + PNG
        + b"\r\n--edge--\r\n"
    )
    request, answer = await post(app, body, "multipart/form-data; boundary=edge")
    assert request.status == 200
    assert ClassificationList.model_validate(answer).data == (
        ClassificationList.model_validate((await ask(app, image=TEXT))[1]).data
    )


async def test_a_form_with_a_wrong_field_is_refused(app: ASGIApp) -> None:
    body = (
        b'--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\neyes\r\n'
        b'--edge\r\nContent-Disposition: form-data; name="top_k"\r\n\r\nmany\r\n--edge--\r\n'
    )
    request, answer = await post(app, body, "multipart/form-data; boundary=edge")
    assert request.status == 400
    assert error_of(answer)["param"] in ("image", "top_k")


async def test_many_images_at_once_are_each_their_own(app: ASGIApp) -> None:
    alone = [await ask(app, image=text, top_k=7) for text in TEXTS]
    both = await asyncio.gather(*(ask(app, image=text, top_k=7) for text in TEXTS * 6))
    for at, (request, answer) in enumerate(both):
        assert request.status == 200
        expected = alone[at % len(TEXTS)][1]
        assert isinstance(answer, dict)
        assert isinstance(expected, dict)
        assert answer["data"] == expected["data"]


async def test_of_several_images_a_bomb_fails_alone(app: ASGIApp) -> None:
    request, answer = await ask(app, image=[TEXT, BOMB, TEXT])
    assert request.status == 200
    first, second, third = ClassificationList.model_validate(answer).data
    assert first.classes == third.classes
    assert second.error is not None
    assert (second.error.param, second.error.code) == ("image.1", "request_too_large")


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"image": BOMB}, 413, "image"),
        ({"image": [BOMB, BOMB]}, 413, "image.0"),
        ({"image": TEXT[:-400]}, 400, "image"),
        ({"image": "aGVsbG8="}, 400, "image"),
        ({"image": TEXT, "top_k": 8}, 400, "top_k"),
        ({"image": [TEXT, TEXT], "labels": ["unicorn"]}, 400, "labels.0"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    app: ASGIApp, fields: dict[str, object], status: int, param: str
) -> None:
    request, answer = await ask(app, **fields)
    assert request.status == status
    assert error_of(answer)["param"] == param
    assert request.answer_headers["x-should-retry"] == "false"
