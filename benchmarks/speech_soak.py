"""Speakers who come and go, and files that are broken, by the thousand, on a running platform.

    headpond up deployments/local.yaml
    python benchmarks/speech_soak.py --cycles 2000 --media FOLDER --mutations 20

Speakers are cut off amid a word; memory of the replicas and what is left of sessions is told as
they go. Files of the folders are sent as they are, cut, and with bytes changed: every answer has to
be 200 or 400, by a replica that lives on. `--hasty N` tells the lag of one who speaks in time, alone
and beside N who send 8 times as fast.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import numpy as np
import psutil
import soxr  # type: ignore[import-untyped]
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness import median
from headpond.bundle.store import open_bundle
from headpond_workloads.speech.engine.front.decoding import Bounds, decode
from speech_socket import PIECE_S, RATE_HZ, SENT_HZ, Samples, socket_rows

AT_ONCE = 8
PIECE = 4800
"""Samples of 100 ms, twice: PCM16 at 24 kHz."""


def replicas(names: Sequence[str]) -> list[psutil.Process]:
    """Return the replicas of these applications."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        title = " ".join(process.info["cmdline"] or ())
        if any(title.startswith(f"ray::ServeReplica:{name}:") for name in names):
            found.append(process)
    return found


def memory_mb(processes: Sequence[psutil.Process]) -> list[int]:
    """Return what each holds."""
    return [process.memory_info().rss >> 20 for process in processes]


def headers() -> dict[str, str]:
    """Return the key that the environment holds, as the platform wants it."""
    key = os.environ.get("HEADPOND_API_KEY")
    return {"authorization": f"Bearer {key}"} if key else {}


async def cut_off(url: str, model: str, number: int) -> str:
    """Speak for a while, and be gone; return how it ended."""
    rng = np.random.default_rng(number)
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime?intent=transcription&model={model}"
    try:
        async with connect(address, additional_headers=headers(), ping_interval=None) as socket:
            for _ in range(1 + number % 20):
                sound = (rng.standard_normal(PIECE // 2) * 6_000).astype("<i2").tobytes()
                audio = b64encode(sound).decode()
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            if number % 3 == 0:
                await socket.recv()
            socket.transport.abort()
    except ConnectionClosed as closed:
        return f"closed {closed.rcvd.code if closed.rcvd else 'without a word'}"
    except InvalidStatus as refused:
        return f"refused {refused.response.status_code}"
    return "cut off"


async def sessions(client: httpx2.AsyncClient, url: str) -> int:
    """Return how many sessions there are, with clients and without."""
    text = (await client.get(f"{url}/metrics")).text
    return int(
        sum(float(each) for each in re.findall(r"^headpond_sessions\{.*\} (.+)$", text, re.M))
    )


async def cycles(url: str, model: str, count: int, watched: Sequence[psutil.Process]) -> None:
    """Let speakers come and go."""
    outcomes: Counter[str] = Counter()
    numbers = itertools.count()

    async def speakers() -> None:
        while (number := next(numbers)) < count:
            outcomes[await cut_off(url, model, number)] += 1
            if number % max(count // 10, 1) == 0:
                print(f"{number} cycles, MB: {memory_mb(watched)}", flush=True)

    await asyncio.gather(*(speakers() for _ in range(AT_ONCE)))
    async with httpx2.AsyncClient(timeout=30, headers=headers()) as client:
        for _ in range(90):
            if not (left := await sessions(client, url)):
                break
            await asyncio.sleep(1)
    print(f"{count} cycles, MB: {memory_mb(watched)}; {dict(outcomes)}; sessions left: {left}")


def broken(content: bytes, count: int, chance: random.Random) -> Iterator[bytes]:
    """Iterate over a file, and versions of it that are cut and changed."""
    yield content
    for _ in range(count if content else 0):
        changed = bytearray(content)
        for _ in range(chance.choice((0, 1, 4, 32))):
            # Heads decide how the rest is read.
            most = min(len(changed), chance.choice((64, 512, len(changed))))
            changed[chance.randrange(most)] = chance.randrange(256)
        yield bytes(changed[: chance.choice((len(changed), chance.randrange(len(changed)) + 1))])


async def hurry(url: str, model: str, clip: Samples) -> None:
    """Send a clip over and over, 8 times as fast as it was spoken, and read what comes."""
    content = (soxr.resample(clip, RATE_HZ, SENT_HZ) * 32_767.0).astype("<i2").tobytes()
    step = round(SENT_HZ * PIECE_S) * 2
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime?intent=transcription&model={model}"
    async with connect(address, additional_headers=headers(), ping_interval=None) as socket:
        reading = asyncio.create_task(_drain(socket))
        try:
            while True:
                for at in range(0, len(content), step):
                    audio = b64encode(content[at : at + step]).decode()
                    event = {"type": "input_audio_buffer.append", "audio": audio}
                    await socket.send(json.dumps(event))
                    await asyncio.sleep(PIECE_S / 8)
        finally:
            reading.cancel()


async def _drain(socket: ClientConnection) -> None:
    async for _ in socket:
        pass


async def neighbours(url: str, model: str, hasty: int) -> None:
    """Tell the lag of one who speaks in time, alone and beside some who hurry."""
    bundle = open_bundle(Path(__file__).parents[1] / "bundles/streaming-words")
    given = b64decode(str(bundle.manifest.fixtures[0].given["audio"]))
    clip = decode(given, RATE_HZ, Bounds(duration_ms=60_000))
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime"
    for count in (0, hasty):
        hurrying = [asyncio.create_task(hurry(url, model, clip)) for _ in range(count)]
        partial_s, final_s = await socket_rows(address, model, [[clip] * 8])
        for each in hurrying:
            each.cancel()
        ended = await asyncio.gather(*hurrying, return_exceptions=True)
        wrong = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
        print(
            f"beside {count} who hurry: partial p50 {1000 * median(partial_s):.0f} ms, "
            f"most {1000 * max(partial_s):.0f}; final p50 {1000 * median(final_s):.0f} ms, "
            f"most {1000 * max(final_s):.0f}; {wrong or 'nobody was closed'}"
        )


async def media(url: str, model: str, folders: Sequence[Path], mutations: int) -> None:
    """Send the files of folders, and broken versions of them."""
    chance = random.Random(7)  # noqa: S311 - no secret
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    waiting = (
        (path, each) for path in files for each in broken(path.read_bytes(), mutations, chance)
    )
    statuses: Counter[int] = Counter()

    async def sender(client: httpx2.AsyncClient) -> None:
        for path, content in waiting:
            answer = await client.post(
                f"{url}/v1/audio/transcriptions",
                data={"model": model},
                files={"file": (path.name, content)},
            )
            statuses[answer.status_code] += 1
            if answer.status_code not in (200, 400, 413):
                print(path.name, len(content), answer.status_code, answer.text[:200], flush=True)

    async with httpx2.AsyncClient(timeout=120, headers=headers()) as client:
        await asyncio.gather(*(sender(client) for _ in range(AT_ONCE)))
    print(f"{len(files)} files, {mutations} versions of each: {dict(statuses)}")


async def main() -> None:
    """Do what is asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="whisper-tiny-en")
    parser.add_argument("--applications", nargs="+", default=["speech-whisper", "router"])
    parser.add_argument("--cycles", type=int, default=0)
    parser.add_argument("--media", type=Path, nargs="*", default=())
    parser.add_argument("--mutations", type=int, default=0)
    parser.add_argument("--hasty", type=int, default=0)
    asked = parser.parse_args()
    watched = replicas(asked.applications)
    if asked.cycles:
        await cycles(asked.url, asked.model, asked.cycles, watched)
    if asked.hasty:
        await neighbours(asked.url, asked.model, asked.hasty)
    if asked.media:
        await media(asked.url, asked.model, asked.media, asked.mutations)
    pids = {process.pid for process in replicas(asked.applications)}
    lost = {process.pid for process in watched} - pids
    print(f"MB: {memory_mb(replicas(asked.applications))}; replicas lost: {len(lost)}")


if __name__ == "__main__":
    asyncio.run(main())
