"""OpenAI's client and ours against a painter on the real loop, over HTTP."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from openai.types import (
    ImageEditCompletedEvent,
    ImageEditPartialImageEvent,
    ImageGenCompletedEvent,
    ImageGenPartialImageEvent,
)

from exchanges import serving
from headpond.errors import EngineFailed, InvalidRequest, UnsupportedParameter
from headpond_workloads.client import AsyncClient, Client
from headpond_workloads.diffusion.items import Medium
from workloads.diffusion.brush import MODEL, POISON, Painter, medium_of, painting
from workloads.diffusion.test_serving import MASK, PICTURE

PROMPT = "a red seven"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with painting(Painter()) as app:
        with serving(app) as base_url:
            yield base_url


def openai_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_the_client_of_openai(url: str) -> None:
    with openai_client(url) as client:
        answer = client.images.generate(
            prompt=PROMPT,
            model=MODEL,
            n=2,
            size="48x32",
            quality="high",
            background="opaque",
            moderation="low",
            output_format="jpeg",
            output_compression=80,
            response_format="b64_json",
            user="u",
            extra_body={"seed": 7, "num_inference_steps": 3, "negative_prompt": "blue"},
        )
    assert answer.data is not None
    first, second = answer.data
    assert medium_of(b64decode(first.b64_json or "")) is Medium.JPEG
    assert (getattr(first, "seed", None), getattr(second, "seed", None)) == (7, 8)
    assert (answer.size, answer.output_format, answer.background) == ("48x32", "jpeg", "opaque")
    assert answer.usage is not None
    assert answer.usage.input_tokens_details.text_tokens == 2 * 4
    assert answer.usage.output_tokens == 2 * 3 * 2
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_the_stream_of_openai(url: str) -> None:
    with openai_client(url) as client:
        stream = client.images.generate(prompt=PROMPT, model=MODEL, stream=True, partial_images=2)
        *previews, last = list(stream)
    assert all(isinstance(each, ImageGenPartialImageEvent) for each in previews)
    assert len(previews) == 2
    assert isinstance(last, ImageGenCompletedEvent)
    assert last.usage.output_tokens == 4
    assert medium_of(b64decode(last.b64_json)) is Medium.PNG


def test_progress_does_not_disturb_the_stream_of_openai(url: str) -> None:
    with openai_client(url) as client:
        stream = client.images.generate(
            prompt=PROMPT, model=MODEL, stream=True, extra_body={"progress": True}
        )
        found = list(stream)
    completed = [each for each in found if each.type == "image_generation.completed"]
    assert len(completed) == 1
    assert [str(each.type) for each in found].count("image_generation.progress") == 4


async def test_the_async_stream_of_openai(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.images.generate(
            prompt=PROMPT, model=MODEL, stream=True, partial_images=1
        )
        types = [event.type async for event in stream]
    assert types == ["image_generation.partial_image", "image_generation.completed"]


def test_edits_of_openai(url: str) -> None:
    with openai_client(url) as client:
        plain = client.images.edit(
            image=("a.png", PICTURE), prompt=PROMPT, model=MODEL, extra_body={"seed": 7}
        )
        strong = {"seed": 7, "strength": 1.0, "num_inference_steps": 4, "guidance_scale": 2.5}
        listed = client.images.edit(
            image=[("a.png", PICTURE)],
            mask=("mask.png", MASK),
            prompt=PROMPT,
            model=MODEL,
            n=2,
            size="auto",
            output_format="webp",
            output_compression=50,
            extra_body=strong,
        )
        *previews, last = list(
            client.images.edit(
                image=PICTURE, prompt=PROMPT, model=MODEL, stream=True, partial_images=1
            )
        )
    assert plain.data is not None
    assert plain.usage is not None
    assert plain.usage.input_tokens_details.image_tokens == 4
    assert listed.data is not None
    assert [getattr(each, "seed", None) for each in listed.data] == [7, 8]
    assert medium_of(b64decode(listed.data[0].b64_json or "")) is Medium.WEBP
    assert [type(each) for each in previews] == [ImageEditPartialImageEvent]
    assert isinstance(last, ImageEditCompletedEvent)


def test_what_openai_raises(url: str) -> None:
    with openai_client(url) as client:
        with pytest.raises(openai.BadRequestError) as refusal:
            client.images.generate(prompt=PROMPT, model=MODEL, size="33x32", stream=True)
        assert refusal.value.param == "size"
        with pytest.deprecated_call(), pytest.raises(openai.BadRequestError) as refusal:
            client.images.create_variation(image=PICTURE, model=MODEL)
        assert refusal.value.param == "image"
        with pytest.raises(openai.NotFoundError):
            client.images.generate(prompt=PROMPT, model="gpt-image-2")


def test_our_client(url: str, tmp_path: Path) -> None:
    with Client(base_url=url, max_retries=0) as client:
        pictures = client.images.generate(prompt=PROMPT, model=MODEL, n=2, seed=7)
        assert [each.seed for each in pictures.data] == [7, 8]
        pictures.data[0].save(tmp_path / "seven.png")
        assert medium_of((tmp_path / "seven.png").read_bytes()) is Medium.PNG
        edited = client.images.edit(
            image=PICTURE, mask=MASK, prompt=PROMPT, seed=7, output_format="webp"
        )
        assert medium_of(edited.data[0].content) is Medium.WEBP


def test_our_stream_ends_with_the_last_picture(url: str, tmp_path: Path) -> None:
    with Client(base_url=url, max_retries=0) as client:
        with client.images.generate(
            prompt=PROMPT, model=MODEL, n=2, seed=7, stream=True, partial_images=1, progress=True
        ) as stream:
            found = list(stream)
        whole = client.images.generate(prompt=PROMPT, model=MODEL, n=2, seed=7)
        with client.images.edit(image=PICTURE, prompt=PROMPT, stream=True) as edits:
            assert [each.type for each in edits] == ["image_edit.completed"]
    done = {each.index: each for each in found if each.type == "image_generation.completed"}
    assert [done[at].content for at in range(2)] == [each.content for each in whole.data]
    steps = [(each.step, each.steps) for each in found if each.step is not None]
    assert steps.count((4, 4)) == 2
    previews = [each for each in found if each.partial_image_index is not None]
    previews[0].save(tmp_path / "preview.png")
    assert medium_of((tmp_path / "preview.png").read_bytes()) is Medium.PNG


async def test_our_async_client(url: str) -> None:
    async with AsyncClient(base_url=url, max_retries=0) as client:
        whole = await client.images.generate(prompt=PROMPT, seed=7)
        stream = await client.images.generate(prompt=PROMPT, seed=7, stream=True)
        async with stream:
            found = [event async for event in stream]
        assert [each.b64_json for each in found] == [whole.data[0].b64_json]
        edited = await client.images.edit(image=PICTURE, prompt=PROMPT, seed=7)
        again = await client.images.edit(image=PICTURE, prompt=PROMPT, seed=7, stream=True)
        async with again:
            assert [event.content async for event in again] == [edited.data[0].content]


def test_what_our_client_raises(url: str) -> None:
    with Client(base_url=url, max_retries=0) as client:
        with pytest.raises(InvalidRequest) as refusal:
            client.images.generate(prompt="", model=MODEL)
        assert refusal.value.param == "prompt"
        with pytest.raises(UnsupportedParameter) as unsupported:
            client.images.generate(prompt=PROMPT, scheduler="lcm", stream=True)
        assert unsupported.value.param == "scheduler"
        with pytest.raises(EngineFailed):
            client.images.generate(prompt=POISON, stream=True)
