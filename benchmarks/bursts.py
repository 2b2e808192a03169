"""One burst of streams against one contender, and what it cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from contenders import Contender
from harness import median, quantile
from streams import Ask, Stream, burst

_TIMEOUT_S = 120.0
_SETTLE_S = 0.15
"""Pause before a measurement, for what the one before left behind."""


class BurstFailed(Exception):
    """A burst did not give what it should; says what."""


@dataclass(frozen=True, kw_only=True)
class Burst:
    """What one burst measured, and what came out.

    Attributes:
        row: Figures by name.
        texts: The texts, in the order of the prompts.
    """

    row: dict[str, float]
    texts: list[str]


async def prime(contender: Contender, prompt: str) -> None:
    """Send one short request that is not measured."""
    asked = Ask(
        port=contender.server.port, path=contender.path, body=contender.body(prompt, max_tokens=2)
    )
    (seen,) = await burst([asked], timeout_s=_TIMEOUT_S)
    if seen.error:
        raise BurstFailed(seen.error)


async def measure(contender: Contender, prompts: Sequence[str], *, tokens: int) -> Burst:
    """Send all prompts at once and wait for all answers.

    Raises:
        BurstFailed: A stream was refused, broke off or was short.
    """
    server = contender.server
    asks = [
        Ask(port=server.port, path=contender.path, body=contender.body(prompt, tokens))
        for prompt in prompts
    ]
    await asyncio.sleep(_SETTLE_S)
    before = server.cpu_s(contender.others)
    streams = await burst(asks, timeout_s=_TIMEOUT_S)
    cpu_s = server.cpu_s(contender.others) - before
    _check(streams, tokens)
    row = {
        **figures(streams),
        "cpu_ms": 1e3 * cpu_s / sum(seen.tokens for seen in streams),
        "pss_mib": server.pss_bytes(contender.others) / 2**20,
    }
    return Burst(row=row, texts=[seen.text for seen in streams])


def figures(streams: Sequence[Stream]) -> dict[str, float]:
    """Return what the client saw of a burst."""
    took = max(seen.ended for seen in streams) - min(seen.sent for seen in streams)
    tokens = sum(seen.tokens for seen in streams)
    gaps = [gap for seen in streams for gap in seen.gaps_s]
    pieces = sum(len(seen.times) for seen in streams)
    return {
        "tokens_s": tokens / took,
        "decode_s": median([_decode_rate(seen) for seen in streams]),
        "first_ms": 1e3 * median([seen.first_s for seen in streams]),
        "gap_p50_ms": 1e3 * quantile(gaps, 0.5),
        "gap_p99_ms": 1e3 * quantile(gaps, 0.99),
        "tokens_per_piece": tokens / pieces,
    }


def _decode_rate(seen: Stream) -> float:
    took = seen.times[-1] - seen.times[0]
    return (seen.tokens - 1) / took if took > 0 else 0.0


def _check(streams: Sequence[Stream], tokens: int) -> None:
    broken = [seen.error for seen in streams if seen.error]
    if broken:
        raise BurstFailed(f"{len(broken)} of {len(streams)} streams failed: {broken[0]}")
    counts = sorted({seen.tokens for seen in streams})
    if counts != [tokens]:
        raise BurstFailed(f"streams of {counts} tokens instead of {tokens}")
