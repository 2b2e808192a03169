"""Another application comes and goes: streams and sockets go on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx2
import pytest

from headpond.testing.echo import write_echo_bundle
from speakers import AUTH, COMPLETED, FAILED, pieces, speaker, speech
from testbed import WORDS, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

TEXT = "word " * 200


async def read(client: httpx2.AsyncClient, chunks: int, started: asyncio.Event) -> list[str]:
    """Return the data of every event of a stream."""
    body = {"model": "echo", "text": TEXT, "chunks": chunks, "stream": True}
    found = []
    async with client.stream("POST", "/v1/echo", json=body) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                started.set()
                found.append(line.removeprefix("data: "))
    return found


def amended(platform: Platform, folder: Path) -> Path:
    """Write the platform's config with one more application, and return where."""
    config = json.loads((platform.log.parent / "config.json").read_text())
    bundle = write_echo_bundle(folder / "extra")
    config["applications"].append(
        {
            "name": "extra",
            "route_prefix": "/models/extra",
            "import_path": "headpond.deployment:build",
            "args": {"alias": "extra", "bundle": str(bundle)},
        }
    )
    path = folder / "amended.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.long
async def test_streams_and_sockets_outlive_the_deploy_of_another_application(
    platform: Platform, tmp_path: Path
) -> None:
    def deploy() -> None:
        platform.apply(amended(platform, tmp_path))
        platform.apply(platform.log.parent / "config.json")

    async with (
        httpx2.AsyncClient(base_url=platform.base_url, timeout=90, headers=AUTH) as client,
        speaker(platform, WORDS) as person,
        asyncio.TaskGroup() as group,
    ):
        started = asyncio.Event()
        stream = group.create_task(read(client, 3_000, started))
        await started.wait()
        deploying = group.create_task(asyncio.to_thread(deploy))
        while not deploying.done():
            for piece in pieces(speech(), 40):
                await person.say(piece)
                await asyncio.sleep(0.02)
            await person.until(COMPLETED)
        assert set(person.finals) == {"go forward ten meters"}
        assert not [each for each in person.events if each["type"] in ("error", FAILED)]
        *parts, last = await stream
        assert last == "[DONE]"
        assert "".join(json.loads(part)["text"] for part in parts) == TEXT
