"""The client sends images as base64, and reads classes."""

from __future__ import annotations

import json

import httpx2
import pytest

from headpond.client.async_transport import AsyncTransport
from headpond.client.config import ClientConfig
from headpond.client.transport import Transport
from headpond.errors import InvalidRequest
from headpond.testing.http_script import ScriptedServer
from headpond_workloads.vision.client import AsyncClassifications, Classifications
from headpond_workloads.vision.dialects import routes
from headpond_workloads.vision.items import ImageItem, Selection
from workloads.images.pictures import saved, scene
from workloads.vision.test_dialects import read

PNG = saved(scene(), "PNG")
CONFIG = ClientConfig(base_url="http://test", api_key=None)
ANSWER = {
    "object": "list",
    "created": 1,
    "model": "eyes",
    "data": [{"index": 0, "classes": [{"label": "cat", "index": 3, "score": 0.5}]}],
    "usage": {"images": 1, "pixels": 12},
}


def sent(server: ScriptedServer) -> dict[str, object]:
    (request,) = server.requests
    assert request.url.path == routes[0].path
    fields: dict[str, object] = json.loads(request.content)
    return fields


def test_bytes_go_out_as_base64() -> None:
    server = ScriptedServer(httpx2.Response(200, json=ANSWER))
    with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
        answer = Classifications(Transport(CONFIG, http)).create(
            model="eyes", image=PNG, top_k=2, extra_body={"future": True}
        )
    assert answer.data[0].classes is not None
    assert answer.data[0].classes[0].label == "cat"
    fields = sent(server)
    assert fields.pop("future") is True
    fields.pop("model")
    assert read(**fields).ask().items == (ImageItem(data=PNG, selection=Selection(top_k=2)),)


async def test_several_images_may_mix_bytes_and_texts() -> None:
    server = ScriptedServer(httpx2.Response(200, json=ANSWER))
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
        await AsyncClassifications(AsyncTransport(CONFIG, http)).create(
            model="eyes", image=[PNG, "data:image/png;base64,AAAA"], labels=["cat"]
        )
    images = sent(server)["image"]
    assert isinstance(images, list)
    assert images[1] == "data:image/png;base64,AAAA"
    assert images[0].startswith("iVBOR")


def test_what_the_server_would_refuse_is_not_sent() -> None:
    server = ScriptedServer()
    with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
        classifications = Classifications(Transport(CONFIG, http))
        with pytest.raises(InvalidRequest) as refusal:
            classifications.create(model="eyes", image=PNG, top_k=0)
    assert refusal.value.param == "top_k"
