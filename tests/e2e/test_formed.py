"""Embedding, reranking and vision on a running platform, by both doors."""

from __future__ import annotations

import asyncio
import base64
import io

import cohere
import httpx
import httpx2
import numpy as np
import openai
import pytest
import tritonclient.http as triton  # type: ignore[import-untyped]
from PIL import Image

import headpond
from testbed import FORMED, KEY, OTHER_KEY, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

EMBEDDING, RERANKING, VISION = FORMED
AUTH = {"authorization": f"Bearer {KEY}"}
DOORS = ("routed", "direct")


def base_url(platform: Platform, door: str, alias: str) -> str:
    return platform.base_url if door == "routed" else platform.direct(alias)


def photo() -> bytes:
    """A picture of which nobody needs to know what it shows."""
    gradient = np.linspace(0, 255, 320 * 240 * 3).reshape(240, 320, 3).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(gradient).save(file, "JPEG")
    return file.getvalue()


@pytest.mark.parametrize("door", DOORS)
def test_embeddings_by_openais_client(platform: Platform, door: str) -> None:
    url = base_url(platform, door, EMBEDDING)
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        texts = ["a dog barks", "a puppy barks", "the stock market fell"]
        found = client.embeddings.create(model=EMBEDDING, input=texts)
        again = client.embeddings.create(model=EMBEDDING, input=texts[0], encoding_format="float")
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model=EMBEDDING, input=["fine", ""])
    vectors = np.array([each.embedding for each in found.data])
    likeness = vectors @ vectors.T
    assert likeness[0, 1] > 0.6 > likeness[0, 2]
    assert again.data[0].embedding == pytest.approx(vectors[0].tolist(), abs=1e-8)
    assert refused.value.param == "input.1"


@pytest.mark.parametrize("door", DOORS)
async def test_a_call_of_2048_texts_and_small_ones_beside_it(platform: Platform, door: str) -> None:
    url = f"{base_url(platform, door, EMBEDDING)}/v1/embeddings"
    texts = [f"number {at} of a long list of texts" for at in range(2048)]
    async with httpx2.AsyncClient(headers=AUTH, timeout=120) as client:

        async def embed(given: str | list[str]) -> list[list[float]]:
            body = {"model": EMBEDDING, "input": given}
            answer = await client.post(url, json=body)
            answer.raise_for_status()
            return [each["embedding"] for each in answer.json()["data"]]

        large = asyncio.create_task(embed(texts))
        small = [await embed(texts[at]) for at in range(20)]
        assert not large.done(), "the small calls did not wait for the large one"
        whole = await large
    assert [vector for (vector,) in small] == whole[:20]


@pytest.mark.parametrize("door", DOORS)
def test_reranking_by_coheres_client_and_ours(platform: Platform, door: str) -> None:
    url = base_url(platform, door, RERANKING)
    documents = ["The miller sleeps.", "Water from the headpond turns the wheel.", "It rains."]
    with httpx.Client() as http:
        theirs = cohere.ClientV2(api_key=KEY, base_url=url, httpx_client=http)
        ranked = theirs.rerank(model=RERANKING, query="What turns the wheel?", documents=documents)
    with headpond.Client(base_url=url, api_key=KEY) as client:
        ours = client.rerank(
            model=RERANKING, query="What turns the wheel?", documents=documents, top_n=1
        )
    assert ranked.results[0].index == 1
    assert ours.results[0].index == 1
    assert ours.results[0].relevance_score == ranked.results[0].relevance_score


@pytest.mark.parametrize("door", DOORS)
def test_images_as_forms_json_and_tensors(platform: Platform, door: str) -> None:
    url, data = base_url(platform, door, VISION), photo()
    path = f"{url}/v1/images/classifications"
    with httpx2.Client(headers=AUTH, timeout=60) as client:
        form = client.post(
            path, data={"model": VISION, "top_k": "3"}, files={"image": ("a.jpg", data)}
        )
        text = base64.b64encode(data).decode()
        plain = client.post(path, json={"model": VISION, "top_k": 3, "image": text})
        broken = client.post(path, json={"model": VISION, "image": [text, text[:800]]})
    assert form.json()["data"] == plain.json()["data"]
    assert len(form.json()["data"][0]["classes"]) == 3
    assert [each["error"] is None for each in broken.json()["data"]] == [True, False]
    with triton.InferenceServerClient(url.removeprefix("http://")) as oip:
        headers = {"Authorization": f"Bearer {KEY}"}
        tensor = triton.InferInput("image", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([data], dtype=np.object_))
        result = oip.infer(VISION, [tensor], headers=headers)
        assert oip.is_model_ready(VISION, headers=headers)
        assert oip.is_server_ready(headers=headers)
    best = int(result.as_numpy("logits")[0].argmax())
    assert best == form.json()["data"][0]["classes"][0]["index"]


def test_bodies_of_many_megabytes_pass_the_router(platform: Platform) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1600, 2000, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    assert len(file.getvalue()) > 9e6
    answer = httpx2.post(
        f"{platform.base_url}/v1/images/classifications",
        data={"model": VISION},
        files={"image": ("noise.png", file.getvalue())},
        headers=AUTH,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text


def test_one_path_for_several_workloads(platform: Platform) -> None:
    with httpx2.Client(base_url=platform.base_url, headers=AUTH, timeout=30) as client:
        outputs = {
            alias: client.get(f"/v2/models/{alias}").json()["outputs"][0]["name"]
            for alias in (EMBEDDING, VISION)
        }
        unknown = client.get("/v2/models/nobody")
        info = client.get(f"/models/{RERANKING}/info").json()
    assert outputs == {EMBEDDING: "embedding", VISION: "logits"}
    assert (unknown.status_code, list(unknown.json())) == (404, ["error"])
    assert "reranker" in info["model_type"]


async def test_hung_up_calls_leave_nothing(platform: Platform) -> None:
    body = {"model": EMBEDDING, "input": ["some words of a text to embed"] * 512}
    async with httpx2.AsyncClient(headers=AUTH) as client:
        url = f"{platform.direct(EMBEDDING)}/v1/embeddings"
        for at in range(30):
            with pytest.raises(httpx2.TimeoutException):
                await client.post(url, json=body, timeout=0.002 * at + 0.001)
        for _ in range(100):
            text = (await client.get(f"{platform.direct(EMBEDDING)}/metrics", timeout=10)).text
            gauges = [
                line.rsplit(" ", 1)[1]
                for line in text.splitlines()
                if line.startswith(("headpond_running{", "headpond_waiting{"))
            ]
            if gauges == ["0.0", "0.0"]:
                break
            await asyncio.sleep(0.05)
    assert gauges == ["0.0", "0.0"]


def test_a_key_of_another_tenant_gets_the_same_vectors(platform: Platform) -> None:
    found = [
        httpx2.post(
            f"{platform.base_url}/embed",
            json={"inputs": "a text", "model": EMBEDDING},
            headers={"authorization": f"Bearer {key}"},
            timeout=30,
        ).json()
        for key in (KEY, OTHER_KEY)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("door", DOORS)
async def test_headers_that_serve_could_not_decode(platform: Platform, door: str) -> None:
    url = f"{base_url(platform, door, EMBEDDING)}/v1/embeddings"
    host, port = platform.base_url.removeprefix("http://").split(":")
    body = b'{"model": "%s", "input": "a"}' % EMBEDDING.encode()
    head = (
        f"POST {url.removeprefix(platform.base_url)} HTTP/1.1\r\nhost: {host}\r\n"
        f"authorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    ).encode()
    odd = b"x-request-id: caf\xe9\r\nx-session-id: \xff\r\nx-request-timeout-seconds: 0.001\r\n"
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head + odd + b"\r\n" + body)
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.lower().count(b"x-request-id:") == 1
