"""The whole path over HTTP: the dialect, the real loop, a painter, and the answer."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from PIL import Image

from headpond.http.app import ASGIApp
from headpond.telemetry.report import CallReport
from headpond.testing.asgi import AsgiRequest
from headpond_workloads.diffusion.items import Medium
from headpond_workloads.diffusion.schema import EDITS_PATH, GENERATIONS_PATH, VARIATIONS_PATH
from workloads.diffusion.brush import MODEL, POISON, Painter, medium_of, painting
from workloads.images.pictures import png_of_zeros, saved, scene

PICTURE = saved(scene(32, 32), "PNG")
HOLE = Image.new("RGBA", (32, 32), (0, 0, 0, 255))
HOLE.paste((0, 0, 0, 0), (8, 8, 24, 24))
MASK = saved(HOLE, "PNG")
NO_HEADERS: Mapping[str, str] = {}
SOON = {"x-headpond-deadline-ms": "20"}


def text(content: bytes) -> str:
    return b64encode(content).decode()


@pytest.fixture
def painter() -> Painter:
    return Painter()


@pytest.fixture
def reports() -> list[CallReport]:
    return []


@pytest.fixture
async def app(painter: Painter, reports: list[CallReport]) -> AsyncIterator[ASGIApp]:
    async with painting(painter, reports) as found:
        yield found
    assert painter.open == 0


async def send(
    app: ASGIApp,
    path: str = GENERATIONS_PATH,
    headers: Mapping[str, str] = NO_HEADERS,
    /,
    **fields: object,
) -> AsgiRequest:
    body = {"model": MODEL, "prompt": "a red seven", **fields}
    return await AsgiRequest(path=path, parts=[json.dumps(body).encode()], headers=headers).run(app)


async def ask(app: ASGIApp, path: str = GENERATIONS_PATH, /, **fields: object) -> Any:
    request = await send(app, path, **fields)
    assert request.status == 200, request.body
    return json.loads(request.body)


async def files(app: ASGIApp, /, **fields: object) -> list[bytes]:
    return [b64decode(each["b64_json"]) for each in (await ask(app, **fields))["data"]]


async def events(app: ASGIApp, path: str = GENERATIONS_PATH, /, **fields: object) -> list[Any]:
    request = await send(app, path, stream=True, **fields)
    assert request.status == 200, request.body
    found = []
    for block in request.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if lines:
            event = json.loads(lines["data"])
            assert event["type"] == lines["event"]
            found.append(event)
    return found


async def test_a_picture_and_what_it_takes_to_paint_it_again(app: ASGIApp) -> None:
    request = await send(app, seed=7)
    answer = json.loads(request.body)
    (picture,) = answer["data"]
    assert medium_of(b64decode(picture.pop("b64_json"))) is Medium.PNG
    assert picture == {
        "seed": 7,
        "num_inference_steps": 4,
        "guidance_scale": 3.0,
        "scheduler": "ddim",
        "size": "32x32",
    }
    assert answer["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"text_tokens": 3, "image_tokens": 0},
        "output_tokens": 4,
        "total_tokens": 7,
    }
    assert (answer["size"], answer["output_format"]) == ("32x32", "png")
    assert answer["background"] == "opaque"
    assert request.answer_headers["x-headpond-work"] == f"pixel_steps={32 * 32 * 4 * 2}"
    assert "denoise;dur=" in request.answer_headers["server-timing"]


async def test_all_settings_reach_the_painter(app: ASGIApp) -> None:
    request = await send(
        app,
        seed=1,
        size="48x24",
        num_inference_steps=3,
        guidance_scale=1,
        scheduler="euler",
        negative_prompt="two words",
        output_format="webp",
        output_compression=30,
    )
    answer = json.loads(request.body)
    (picture,) = answer["data"]
    assert medium_of(b64decode(picture["b64_json"])) is Medium.WEBP
    assert (picture["scheduler"], picture["num_inference_steps"]) == ("euler", 3)
    assert (picture["guidance_scale"], picture["size"]) == (1.0, "48x24")
    assert answer["usage"]["input_tokens"] == 5
    assert answer["usage"]["output_tokens"] == 3 * 2
    assert request.answer_headers["x-headpond-work"] == f"pixel_steps={48 * 24 * 3}"


async def test_pictures_of_one_call_are_those_of_the_seeds_that_follow(app: ASGIApp) -> None:
    together = await files(app, seed=40, n=3)
    assert together == [(await files(app, seed=40 + at))[0] for at in range(3)]
    assert len(set(together)) == 3


async def test_a_drawn_seed_is_told_and_paints_the_same(app: ASGIApp) -> None:
    answer = await ask(app, n=2)
    first, second = answer["data"]
    assert second["seed"] == first["seed"] + 1
    (again,) = (await ask(app, seed=second["seed"]))["data"]
    assert again == second
    assert (await ask(app))["data"][0]["seed"] != first["seed"]


async def test_previews_then_the_picture(app: ASGIApp) -> None:
    *previews, last = await events(app, seed=7, partial_images=2)
    assert [each["type"] for each in previews] == ["image_generation.partial_image"] * 2
    assert [each["partial_image_index"] for each in previews] == [0, 1]
    assert [each["size"] for each in previews] == ["32x32"] * 2
    assert last["type"] == "image_generation.completed"
    assert [b64decode(last["b64_json"])] == await files(app, seed=7)
    assert last["usage"]["total_tokens"] == 7
    assert last["seed"] == 7
    assert {last["quality"], last["background"], last["output_format"]} == {"auto", "opaque", "png"}


async def test_fewer_previews_where_there_are_fewer_steps(app: ASGIApp) -> None:
    found = await events(app, partial_images=3, num_inference_steps=2)
    assert [each["type"].split(".")[1] for each in found] == ["partial_image", "completed"]


async def test_no_preview_is_one_event(app: ASGIApp) -> None:
    assert len(await events(app, partial_images=0)) == 1


async def test_progress_is_a_type_of_its_own(app: ASGIApp) -> None:
    found = await events(app, progress=True, num_inference_steps=3)
    steps = [each for each in found if each["type"] == "image_generation.progress"]
    assert [(each["step"], each["steps"]) for each in steps] == [(1, 3), (2, 3), (3, 3)]
    assert len(found) == 4


async def test_a_stream_of_several_says_which_picture_each_event_is_of(app: ASGIApp) -> None:
    found = await events(app, seed=5, n=2, partial_images=1)
    done = {each["index"]: each for each in found if each["type"].endswith("completed")}
    assert {index: each["seed"] for index, each in done.items()} == {0: 5, 1: 6}
    assert [each["index"] for each in found if each["type"].endswith("partial_image")] == [0, 1]


async def test_pictures_of_different_step_counts_share_steps(
    app: ASGIApp, painter: Painter
) -> None:
    painter.step_s = 0.002
    await asyncio.gather(*(ask(app, num_inference_steps=40 + at) for at in range(4)))
    assert max(painter.rows) > 1


async def test_an_edit_begins_from_a_picture(app: ASGIApp) -> None:
    request = await send(
        app, EDITS_PATH, image=text(PICTURE), strength=0.5, seed=7, num_inference_steps=8
    )
    answer = json.loads(request.body)
    (picture,) = answer["data"]
    assert (picture["num_inference_steps"], picture["strength"]) == (8, 0.5)
    assert answer["usage"]["input_tokens_details"] == {"text_tokens": 3, "image_tokens": 4}
    assert answer["usage"]["total_tokens"] == 3 + 4 + 4
    assert request.answer_headers["x-headpond-work"] == f"pixel_steps={32 * 32 * 4 * 2}"
    masked = await ask(app, EDITS_PATH, image=text(PICTURE), mask=text(MASK), seed=7)
    assert (masked["data"][0]["num_inference_steps"], masked["data"][0]["strength"]) == (4, 1.0)
    assert masked["data"][0]["b64_json"] != answer["data"][0]["b64_json"]


async def test_what_an_edit_answers_paints_it_again(app: ASGIApp) -> None:
    answer = await ask(app, EDITS_PATH, image=text(PICTURE), num_inference_steps=10)
    (told,) = answer["data"]
    assert (told["num_inference_steps"], told["strength"]) == (10, 0.8)
    fields = {name: value for name, value in told.items() if name != "b64_json"}
    assert (await ask(app, EDITS_PATH, image=text(PICTURE), **fields))["data"] == [told]
    *_, last = await events(app, EDITS_PATH, image=text(PICTURE), **fields)
    assert {name: last[name] for name in told} == told


async def test_an_edit_is_streamed_under_its_own_names(app: ASGIApp) -> None:
    found = await events(app, EDITS_PATH, image=text(PICTURE), partial_images=1, progress=True)
    assert {each["type"] for each in found} == {
        "image_edit.progress",
        "image_edit.partial_image",
        "image_edit.completed",
    }


GENERATION_FAULTS: list[tuple[str, object]] = [
    ("prompt", ""),
    ("prompt", None),
    ("prompt", ["a", "b"]),
    ("prompt", "x" * 32_001),
    ("n", 0),
    ("n", 11),
    ("n", 1.5),
    ("size", "large"),
    ("size", "0x32"),
    ("size", "33x32"),
    ("size", "128x128"),
    ("quality", "best"),
    ("background", "transparent"),
    ("moderation", "high"),
    ("style", "vivid"),
    ("output_format", "gif"),
    ("output_compression", 101),
    ("output_compression", 50),
    ("response_format", "url"),
    ("partial_images", 4),
    ("partial_images", 1),
    ("progress", True),
    ("seed", -1),
    ("seed", 2**53),
    ("num_inference_steps", 0),
    ("num_inference_steps", 1001),
    ("guidance_scale", -0.5),
    ("guidance_scale", "strict"),
    ("scheduler", "slow"),
    ("scheduler", "lcm"),
    ("stream", "yes"),
    ("negative_prompt", 3),
]


@pytest.mark.parametrize(("field", "value"), GENERATION_FAULTS)
async def test_what_is_wrong_is_named(app: ASGIApp, field: str, value: object) -> None:
    request = await send(app, **{field: value})
    error = json.loads(request.body)["error"]
    assert (request.status, error["type"], error["param"]) == (400, "invalid_request_error", field)


@pytest.mark.parametrize("field", ["size", "n", "prompt", "scheduler"])
async def test_a_stream_is_refused_before_its_first_event(app: ASGIApp, field: str) -> None:
    value = {"size": "33x32", "n": 11, "prompt": "", "scheduler": "lcm"}[field]
    request = await send(app, stream=True, **{field: value})
    assert request.status == 400
    assert request.answer_headers["content-type"] == "application/json"
    assert json.loads(request.body)["error"]["param"] == field


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({}, 400, "image"),
        ({"image": ""}, 400, "image"),
        ({"image": "no base64!"}, 400, "image"),
        ({"image": "https://example.com/a.png"}, 400, "image"),
        ({"image": text(b"no picture at all")}, 400, "image"),
        ({"image": text(PICTURE[:60])}, 400, "image"),
        ({"image": text(png_of_zeros(4000))}, 413, "image"),
        ({"image": [text(PICTURE)] * 2}, 400, "image"),
        ({"image": text(PICTURE), "mask": text(PICTURE)}, 400, "mask"),
        ({"image": text(PICTURE), "mask": "no base64!"}, 400, "mask"),
        ({"image": text(saved(scene(16, 16), "PNG")), "mask": text(MASK)}, 400, "mask"),
        ({"image": text(PICTURE), "strength": 0}, 400, "strength"),
        ({"image": text(PICTURE), "strength": 1.1}, 400, "strength"),
        ({"image": text(PICTURE), "style": "vivid"}, 400, "style"),
        ({"image": text(PICTURE), "moderation": "high"}, 400, "moderation"),
        ({"image": text(PICTURE), "input_fidelity": "high"}, 400, "input_fidelity"),
        ({"image": text(PICTURE), "markup": text(MASK)}, 400, "markup"),
    ],
)
async def test_what_is_wrong_with_an_edit_is_named(
    app: ASGIApp, fields: dict[str, object], status: int, param: str
) -> None:
    request = await send(app, EDITS_PATH, **fields)
    assert (request.status, json.loads(request.body)["error"]["param"]) == (status, param)


async def test_a_urlencoded_form_is_told_of_the_other(app: ASGIApp) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    request = AsgiRequest(path=EDITS_PATH, parts=[b"prompt=a&image=b"], headers=headers)
    assert "multipart/form-data" in json.loads((await request.run(app)).body)["error"]["message"]


async def test_messages_say_what_is_meant(app: ASGIApp) -> None:
    picture = {"image": text(PICTURE)}
    for path, fields, message in (
        (GENERATIONS_PATH, {"progress": True}, "progress comes in a stream"),
        (GENERATIONS_PATH, {"partial_images": 1}, "partial images come in a stream"),
        (EDITS_PATH, {**picture, "mask": text(b"no mask")}, "the mask is no PNG"),
        (EDITS_PATH, {**picture, "mask": text(MASK[:60])}, "the mask cannot be decoded"),
        (EDITS_PATH, {**picture, "mask": text(PICTURE)}, "the mask says of no part"),
    ):
        request = await send(app, path, **fields)
        assert message in json.loads(request.body)["error"]["message"]


async def test_variations_are_refused_clearly(app: ASGIApp) -> None:
    request = await send(app, VARIATIONS_PATH, image=text(PICTURE))
    error = json.loads(request.body)["error"]
    assert (request.status, error["param"]) == (400, "image")
    assert EDITS_PATH in error["message"]


async def test_a_picture_that_fails_fails_its_call_and_no_other(app: ASGIApp) -> None:
    failed, good = await asyncio.gather(send(app, prompt=POISON), ask(app, seed=7))
    assert failed.status == 500
    assert json.loads(failed.body)["error"]["code"] == "engine_failed"
    assert (await ask(app, seed=7))["data"] == good["data"]


async def test_a_stream_that_fails_at_once_is_an_error_status(app: ASGIApp) -> None:
    assert (await send(app, prompt=POISON, stream=True)).status == 500


async def test_a_deadline_ends_the_steps(
    app: ASGIApp, painter: Painter, reports: list[CallReport]
) -> None:
    painter.step_s = 0.01
    request = await send(app, GENERATIONS_PATH, SOON, size="64x64", num_inference_steps=1000)
    assert request.status == 408
    assert request.answer_headers["x-should-retry"] == "false"
    assert reports[-1].work["pixel_steps"] < 64 * 64 * 1000 * 2


async def test_what_would_surely_miss_its_deadline_is_refused_before_its_first_step(
    app: ASGIApp, painter: Painter
) -> None:
    painter.row_s = 0.0005
    # What can be done is known from when there was more to do.
    await asyncio.gather(*(ask(app, num_inference_steps=20) for _ in range(80)))
    steps = len(painter.rows)
    request = await send(
        app, GENERATIONS_PATH, {"x-headpond-deadline-ms": "100"}, num_inference_steps=1000
    )
    error = json.loads(request.body)["error"]
    assert (request.status, error["code"]) == (408, "deadline_exceeded")
    assert "at least" in error["message"]
    assert len(painter.rows) == steps


async def test_a_flood_is_refused_with_when_to_come_again(app: ASGIApp, painter: Painter) -> None:
    painter.step_s = 0.01
    await ask(app, num_inference_steps=20)
    body = json.dumps({"model": MODEL, "prompt": "more", "num_inference_steps": 1000}).encode()
    flood = [AsgiRequest(path=GENERATIONS_PATH, parts=[body]) for _ in range(200)]
    tasks = [asyncio.create_task(each.run(app)) for each in flood]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    refused = done.pop().result()
    assert refused.status == 503
    assert json.loads(refused.body)["error"]["code"] == "overloaded"
    assert int(refused.answer_headers["retry-after"]) >= 1
    for each in flood:
        each.hang_up()
    await asyncio.gather(*tasks)
    while (again := await send(app, seed=7)).status == 503:  # those who left go between steps
        assert "retry-after" in again.answer_headers
    assert json.loads(again.body)["data"] == (await ask(app, seed=7))["data"]


async def test_who_leaves_frees_what_was_held(
    app: ASGIApp, painter: Painter, reports: list[CallReport]
) -> None:
    painter.step_s = 0.005
    body = {"model": MODEL, "prompt": "slow", "num_inference_steps": 1000, "stream": True}
    body |= {"progress": True, "seed": 3}
    request = AsgiRequest(path=GENERATIONS_PATH, parts=[json.dumps(body).encode()])
    serving = asyncio.create_task(request.run(app))
    await request.until(2)
    neighbour = asyncio.create_task(files(app, seed=7, num_inference_steps=30))
    request.hang_up()
    await serving
    assert await neighbour == await files(app, seed=7, num_inference_steps=30)
    assert painter.open == 0
    assert "request_cancelled" in [report.outcome for report in reports]
