"""Speakers on `/v1/realtime` of a running platform, in real time."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Sequence

import numpy as np
import soxr  # type: ignore[import-untyped]
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect

RATE_HZ, SENT_HZ = 16_000, 24_000
PIECE_S = 0.04

Samples = NDArray[np.float32]


async def socket_rows(
    address: str, model: str, clips: Sequence[Sequence[Samples]]
) -> tuple[list[float], list[float]]:
    """Let every stream speak its clips, each committed by hand.

    Returns:
        Seconds from the last piece that was sent to each partial text, and from the commit to
        each final text.
    """
    found = await asyncio.gather(*(_speaker(address, model, said) for said in clips))
    return (
        [each for partial_s, _ in found for each in partial_s],
        [each for _, final_s in found for each in final_s],
    )


async def _speaker(
    address: str, model: str, clips: Sequence[Samples]
) -> tuple[list[float], list[float]]:
    partial_s: list[float] = []
    final_s: list[float] = []
    async with connect(f"{address}?intent=transcription", max_size=None) as socket:
        await _send(
            socket,
            "session.update",
            session={
                "type": "transcription",
                "audio": {"input": {"transcription": {"model": model}, "turn_detection": None}},
            },
        )
        for clip in clips:
            sent = [time.perf_counter()]
            reader = asyncio.create_task(_read(socket, sent, partial_s))
            await _speak(socket, clip, sent)
            final_s.append(await reader - sent[0])
    return partial_s, final_s


async def _speak(socket: ClientConnection, clip: Samples, sent: list[float]) -> None:
    samples = soxr.resample(clip, RATE_HZ, SENT_HZ)
    content = (samples * 32_767.0).clip(-32_768, 32_767).astype("<i2")
    piece = round(SENT_HZ * PIECE_S)
    begin = time.perf_counter()
    for number, at in enumerate(range(0, len(content), piece), 1):
        await asyncio.sleep(max(begin + number * PIECE_S - time.perf_counter(), 0.0))
        audio = b64encode(content[at : at + piece].tobytes()).decode()
        sent[0] = time.perf_counter()
        await _send(socket, "input_audio_buffer.append", audio=audio)
    await _send(socket, "input_audio_buffer.commit")


async def _read(socket: ClientConnection, sent: Sequence[float], partial_s: list[float]) -> float:
    """Note when partial texts come; return when the final one does."""
    async for message in socket:
        event = json.loads(message)
        now = time.perf_counter()
        if event["type"] == "error":
            raise RuntimeError(event["error"]["message"])
        if event["type"].endswith("transcription.delta"):
            partial_s.append(now - sent[0])
        elif event["type"].endswith("transcription.completed"):
            return now
    raise RuntimeError("the socket was closed")


async def _send(socket: ClientConnection, kind: str, **fields: object) -> None:
    await socket.send(json.dumps({"type": kind, **fields}))
