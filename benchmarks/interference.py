"""What a long prompt does to streams that decode beside it.

Eight streams decode. When all are under way and a quiet stretch is measured, a prompt of
4,096 tokens arrives. Gaps between texts of the eight are compared: those of quiet, and those
that touch the time from the long prompt's sending to its first text. Steps grow longer with
the eight's contexts, whoever else is there; so quiet is as long a stretch before as after.

    make bench SUBJECT=interference
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise

from bursts import BurstFailed
from contenders import Contender
from harness import machine, quantile, write_results
from lineup import Lineup, alone, lineup
from prompts import Prompts
from streams import Ask, Stream, stream
from tables import Field, Measure, table_cases

STREAMS = 8
PROMPT_TOKENS = 64
LONG_TOKENS = 4096

MEASURES = (
    Measure(key="stretch", unit="gap p99 with the long prompt / quiet"),
    Measure(key="stretch_before", unit="the same / quiet before it only"),
    Measure(key="quiet_p50_ms", unit="quiet gap p50 ms"),
    Measure(key="quiet_p99_ms", unit="quiet gap p99 ms"),
    Measure(key="during_p50_ms", unit="gap p50 ms with the long prompt"),
    Measure(key="during_p99_ms", unit="gap p99 ms with the long prompt"),
    Measure(key="during_max_ms", unit="longest gap ms"),
    Measure(key="long_first_s", unit="first token of the long prompt s"),
)


async def disturb(
    contender: Contender, prompts: Prompts, *, tokens: int, quiet_s: float
) -> dict[str, float]:
    """Run the eight streams and the long prompt among them once.

    Raises:
        BurstFailed: A stream broke off, or the eight ended before the long prompt began.
    """
    asks = [_ask(contender, prompts.take(PROMPT_TOKENS), tokens) for _ in range(STREAMS)]
    long_ask = _ask(contender, prompts.take(LONG_TOKENS), 4)
    seen = [asyncio.create_task(stream(ask)) for ask in asks]
    await asyncio.sleep(quiet_s)
    sent = time.perf_counter()
    long = await stream(long_ask)
    ended = time.perf_counter()
    streams = list(await asyncio.gather(*seen))
    broken = [each.error for each in [*streams, long] if each.error]
    if broken:
        raise BurstFailed(broken[0])
    steady = max(each.times[1] for each in streams)  # all prompts are in
    before = gaps_within(streams, steady, sent)
    after = gaps_within(streams, ended, ended + sent - steady)
    during = gaps_within(streams, sent, long.times[0], touching=True)
    if not before or not during:
        raise BurstFailed(f"{len(before)} gaps before the long prompt, {len(during)} during it")
    quiet = [*before, *after]
    return {
        "stretch": quantile(during, 0.99) / quantile(quiet, 0.99),
        "stretch_before": quantile(during, 0.99) / quantile(before, 0.99),
        "quiet_p50_ms": 1e3 * quantile(quiet, 0.5),
        "quiet_p99_ms": 1e3 * quantile(quiet, 0.99),
        "during_p50_ms": 1e3 * quantile(during, 0.5),
        "during_p99_ms": 1e3 * quantile(during, 0.99),
        "during_max_ms": 1e3 * max(during),
        "long_first_s": long.first_s,
        "still_decoding": float(all(each.times[-1] > ended for each in streams)),
        "quiet_after": len(after) / len(quiet),
    }


def _ask(contender: Contender, prompt: str, tokens: int) -> Ask:
    return Ask(port=contender.server.port, path=contender.path, body=contender.body(prompt, tokens))


def gaps_within(
    streams: Sequence[Stream], start: float, end: float, *, touching: bool = False
) -> list[float]:
    """Return the gaps that lie in a stretch of time, or also those that only touch it."""
    return [
        later - earlier
        for each in streams
        for earlier, later in pairwise(each.times)
        if (later > start and earlier < end if touching else earlier >= start and later <= end)
    ]


async def rounds(chosen: Lineup, prompts: Prompts, options: argparse.Namespace) -> Field:
    """Disturb every contender in turn; round 0 warms up."""
    rows: Field = {}
    for number in range(options.rounds + 1):
        for contender in chosen.up:
            with alone(contender):
                try:
                    row = await disturb(
                        contender, prompts, tokens=options.tokens, quiet_s=options.quiet
                    )
                except BurstFailed as failure:
                    chosen.failed(f"round {number}, {contender.name}: {failure}")
                    continue
            shown = {key: round(value, 2) for key, value in row.items()}
            print(f"round {number} {contender.name:16} {shown}", flush=True)
            if number:
                rows.setdefault(contender.name, {})[number] = row
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=720, help="that each of the eight writes")
    parser.add_argument("--quiet", type=float, default=1.5, help="seconds before the long prompt")
    parser.add_argument("--only", default="bf16,int8", help="our variants, by comma")
    parser.add_argument("--peers", default="vllm,llama")
    parser.add_argument("--subject", default="interference", help="name of the results file")
    options = parser.parse_args()
    before = machine()
    with lineup(options.only, options.peers, long=True) as chosen:
        chosen.start()
        rows = asyncio.run(rounds(chosen, Prompts(chosen.weights.tokenizer), options))
    scenario = f"{STREAMS} streams, a prompt of {LONG_TOKENS:,} tokens arrives"
    cut_short = sorted(
        name
        for name, measured in rows.items()
        if not all(row["still_decoding"] for row in measured.values())
    )
    path = write_results(
        options.subject,
        {
            "machine": before,
            "versions": chosen.versions(),
            "rounds": options.rounds,
            "settings": chosen.settings(),
            "failures": chosen.failures,
            "cases": list(table_cases(scenario, MEASURES, rows, ours=chosen.ours)),
            "notes": [
                *(f"{name}: streams ended before the long prompt was read" for name in cut_short),
                *(f"failed: {each}" for each in chosen.failures),
            ],
        },
    )
    print(path)


if __name__ == "__main__":
    main()
