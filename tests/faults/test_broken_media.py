"""Files that are broken, or no sound, on a running platform: text or a 400, and nobody dies."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from importlib.resources import files

import httpx2
import pytest

from speakers import AUTH
from testbed import WORDS, Platform
from workloads.speech.sounds import encoded, tone

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RATE_HZ = 48_000
CONTAINERS = (
    ("wav", "pcm_s16le"),
    ("flac", "flac"),
    ("ogg", "libopus"),
    ("mp3", "libmp3lame"),
    ("mp4", "aac"),
    ("matroska", "flac"),
)


def broken_files() -> list[bytes]:
    """Return SciPy's recordings, half of which are broken, and files with bytes changed."""
    chance = random.Random(11)  # noqa: S311 - no secret
    folder = files("scipy.io.tests") / "data"
    found = [each.read_bytes() for each in folder.iterdir() if each.name.endswith(".wav")]
    assert len(found) > 15
    for container, codec in CONTAINERS:
        whole = encoded(tone(RATE_HZ // 2, RATE_HZ), RATE_HZ, container, codec)
        for _ in range(12):
            changed = bytearray(whole)
            most = min(len(changed), chance.choice((64, 512, len(changed))))
            for _ in range(chance.choice((1, 8, 64))):
                changed[chance.randrange(most)] = chance.randrange(256)
            found.append(bytes(changed[: chance.choice((len(changed), most))]))
    return found


async def test_broken_files_are_text_or_refused_and_nobody_dies(platform: Platform) -> None:
    before = [replica.pid for replica in platform.replicas(WORDS)]
    waiting = iter(broken_files())
    statuses: Counter[int] = Counter()

    async def send(client: httpx2.AsyncClient) -> None:
        for content in waiting:
            answer = await client.post(
                f"{platform.base_url}/v1/audio/transcriptions",
                data={"model": WORDS},
                files={"file": ("sound", content)},
            )
            statuses[answer.status_code] += 1
            if answer.status_code != 200:
                assert answer.json()["error"]["param"] == "file", answer.text

    async with httpx2.AsyncClient(timeout=60, headers=AUTH) as client:
        await asyncio.gather(*(send(client) for _ in range(4)))
    # What says that it is days long is too large.
    assert {200, 400} <= set(statuses) <= {200, 400, 413}, statuses
    assert [replica.pid for replica in platform.replicas(WORDS)] == before
