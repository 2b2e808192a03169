"""A real language model behind both doors, asked by everybody's clients."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator

import httpx2
import openai
import pytest

import headpond
from headpond_workloads.generation.params import MessageParam
from testbed import KEY, MODEL, OTHER_KEY, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PROMPT = "What is the capital of France?"
MESSAGES: list[MessageParam] = [{"role": "user", "content": PROMPT}]
BODY = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
AUTH = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(params=["routed", "direct"])
def base_url(request: pytest.FixtureRequest, platform: Platform) -> str:
    return platform.base_url if request.param == "routed" else platform.direct(MODEL)


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=KEY, max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="session")
def text(platform: Platform) -> str:
    """What the plainest of all requests answers."""
    answer = httpx2.post(
        f"{platform.base_url}/v1/chat/completions", json=BODY, headers=AUTH, timeout=60
    )
    assert answer.status_code == 200, answer.text
    content = answer.json()["choices"][0]["message"]["content"]
    assert "Paris" in content
    return str(content)


def test_curl_style(base_url: str, text: str) -> None:
    answer = httpx2.post(f"{base_url}/v1/chat/completions", json=BODY, headers=AUTH, timeout=60)
    assert answer.json()["choices"][0]["message"]["content"] == text
    assert re.fullmatch(
        r"smollm2-135m-instruct@[\d.]+\+[0-9a-f]{12}", answer.headers["x-headpond-bundle"]
    )
    usage = answer.json()["usage"]
    assert f"output_tokens={usage['completion_tokens']}" in answer.headers["x-headpond-work"]
    phases = dict(re.findall(r"(\w+);dur=([\d.]+)", answer.headers["server-timing"]))
    assert {"validate", "tokenize", "queue", "prefill", "decode", "delivery"} <= set(phases)


def test_openai_client(client: openai.OpenAI, text: str) -> None:
    whole = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=12,
        temperature=0,
    )
    assert whole.choices[0].message.content == text
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].usage == whole.usage
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


async def test_openai_async_client(base_url: str, text: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key=KEY) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": PROMPT}],
            max_tokens=12,
            temperature=0,
            stream=True,
        )
        parts = [c.choices[0].delta.content or "" async for c in stream if c.choices]
    assert "".join(parts) == text


def test_our_client(base_url: str, text: str) -> None:
    with headpond.Client(base_url=base_url, api_key=KEY) as client:
        whole = client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=12, temperature=0
        )
        assert whole.choices[0].message.content == text
        with client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=12, temperature=0, stream=True
        ) as stream:
            parts = [c.choices[0].delta.content or "" for c in stream if c.choices]
    assert "".join(parts) == text


async def test_our_async_client(base_url: str, text: str) -> None:
    async with headpond.AsyncClient(base_url=base_url, api_key=KEY) as client:
        whole = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=12, temperature=0
        )
    assert whole.choices[0].message.content == text


def test_completions_and_mixed_batches_do_not_change_each_other(client: openai.OpenAI) -> None:
    prompts = ["Once upon a time", "def add(a, b):", "The sky is"]
    alone = [
        client.completions.create(model=MODEL, prompt=prompt, max_tokens=10, temperature=0)
        .choices[0]
        .text
        for prompt in prompts
    ]
    together = client.completions.create(model=MODEL, prompt=prompts, max_tokens=10, temperature=0)
    assert [choice.text for choice in together.choices] == alone


def test_models_and_workloads(client: openai.OpenAI, base_url: str) -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("no/such/model")
    assert raised.value.code == "model_not_found"
    records = httpx2.get(f"{base_url}/v1/workloads", headers=AUTH, timeout=10).json()["data"]
    assert "generation" in [record["name"] for record in records]


def test_errors_are_the_dialects(client: openai.OpenAI, base_url: str) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}])
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="word " * 20_000, max_tokens=5)
    assert long.value.code == "context_length_exceeded"
    assert "20001 tokens" in long.value.message
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "x"}], temperature=9.0
        )
    assert wrong.value.param == "temperature"
    with (
        openai.OpenAI(base_url=f"{base_url}/v1", api_key="sk-no") as stranger,
        pytest.raises(openai.AuthenticationError) as unknown,
    ):
        stranger.models.list()
    assert unknown.value.code == "invalid_api_key"


def test_health_is_open_and_metrics_are_not(platform: Platform, text: str) -> None:
    assert httpx2.get(f"{platform.base_url}/healthz", timeout=5).status_code == 200
    assert httpx2.get(f"{platform.base_url}/metrics", timeout=5).status_code == 401
    metrics = httpx2.get(
        f"{platform.base_url}/metrics", headers={"authorization": f"Bearer {OTHER_KEY}"}, timeout=5
    ).text
    assert "vllm:num_requests_running" in metrics
    assert 'headpond_phase_seconds_count{bundle="smollm2-135m-instruct@' in metrics


def gauges(platform: Platform) -> dict[str, float]:
    text = httpx2.get(f"{platform.direct(MODEL)}/metrics", headers=AUTH, timeout=5).text
    found = re.findall(
        r"^headpond_(running|waiting|state_held_bytes)\{[^}]*\} ([\d.e+]+)$", text, re.M
    )
    return {name: float(value) for name, value in found}


async def settled(platform: Platform, baseline: dict[str, float], *, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while await asyncio.to_thread(gauges, platform) != baseline:  # noqa: ASYNC110 - a server's
            await asyncio.sleep(0.05)


async def dropped(base_url: str, after_s: float, number: int) -> None:
    """Send a request, read for a while, and drop the connection without a word."""
    host, port = base_url.removeprefix("http://").split("/")[0].split(":")
    path = base_url.removeprefix(f"http://{host}:{port}")
    body = json.dumps(
        {
            **BODY,
            "messages": [{"role": "user", "content": f"{number}: tell a story " + "word " * 60}],
            "max_tokens": 40,
            "stream": number % 2 == 0,
        }
    ).encode()
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST {path}/v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    # Apart, as Python's HTTP clients send them: proxies treat a body that comes later apart too.
    for part in (head.encode(), body):
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.01)
    await asyncio.sleep(after_s)
    if number % 3:
        writer.close()
    else:
        writer.transport.abort()


async def test_two_hundred_dropped_requests_leave_nothing_behind(
    platform: Platform, base_url: str, text: str
) -> None:
    draw = random.Random(7)  # noqa: S311 - arrivals, not secrets
    baseline = gauges(platform)
    assert baseline == {"running": 0, "waiting": 0, "state_held_bytes": 0}
    await asyncio.gather(*(dropped(base_url, draw.uniform(0, 4), n) for n in range(200)))
    await settled(platform, baseline, within_s=2)
    answer = httpx2.post(f"{base_url}/v1/chat/completions", json=BODY, headers=AUTH, timeout=60)
    assert answer.json()["choices"][0]["message"]["content"] == text
