"""Requests per second that meet the record's bounds, as more arrive than can be served.

Open loop: requests arrive by a Poisson process, whatever became of those before, with
prompts and outputs of mixed lengths. Capacity is measured first, closed loop, and the rates
are multiples of it; every contender gets the same arrivals. A request counts when its first
text comes within `first_output_s` and every later text within `gap_s` of the one before
(the record's bounds). Refusals and broken streams count as not delivered; callers do not
retry. Every request carries a deadline; a caller leaves when it has passed by `GRACE_S`.

    make bench SUBJECT=goodput
    python benchmarks/goodput.py --seconds 5 --rates 1,3 --peers ""   # a try
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contenders import Contender
from harness import machine, median, quantile, write_results
from headpond_workloads.generation.record import record
from lineup import Lineup, alone, lineup
from prompts import Prompts
from streams import Ask, Stream, burst, stream
from tables import Field, Measure, table_cases

PROMPT_TOKENS = (32, 64, 128, 256, 512)
OUTPUT_TOKENS = (16, 32, 64, 128)
CLIENTS = 16
DEADLINE_S = 20.0
GRACE_S = 5.0
STEP_S = 0.2
"""A deadline is missed when the answer goes on for longer than a step after it."""

_BOUNDS = record.throughput[0].bounds
_FIRST_S, _GAP_S = _BOUNDS.first_output_s or math.inf, _BOUNDS.gap_s or math.inf
_REFUSALS = frozenset({429, 503})

MEASURES = (
    Measure(key="good_s", unit="good requests/s"),
    Measure(key="offered_s", unit="offered/s"),
    Measure(key="accepted", unit="accepted"),
    Measure(key="refused", unit="refused"),
    Measure(key="refusal_p99_ms", unit="refusal p99 ms"),
    Measure(key="retry_after_s", unit="Retry-After s"),
    Measure(key="expired", unit="expired"),
    Measure(key="late", unit="over the deadline"),
    Measure(key="first_p50_ms", unit="first token p50 ms"),
    Measure(key="first_p99_ms", unit="first token p99 ms"),
    Measure(key="gap_p99_ms", unit="gap p99 ms"),
)


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A request and when it comes, in seconds from the beginning."""

    at_s: float
    prompt: str
    tokens: int


def arrivals(prompts: Prompts, rate: float, seconds: float, seed: int) -> list[Arrival]:
    """Draw a Poisson process of mixed lengths."""
    chance = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    found: list[Arrival] = []
    at_s = chance.expovariate(rate)
    while at_s < seconds:
        prompt = prompts.take(chance.choice(PROMPT_TOKENS))
        found.append(Arrival(at_s=at_s, prompt=prompt, tokens=chance.choice(OUTPUT_TOKENS)))
        at_s += chance.expovariate(rate)
    return found


def _ask(contender: Contender, arrival: Arrival, deadline_s: float) -> Ask:
    return Ask(
        port=contender.server.port,
        path=contender.path,
        body=contender.body(arrival.prompt, arrival.tokens),
        headers={"x-headpond-deadline-ms": str(int(deadline_s * 1e3))} if contender.ours else {},
    )


async def capacity(contender: Contender, prompts: Prompts, seconds: float) -> float:
    """Return the requests per second that a fixed number of clients get, one after the other."""
    chance = random.Random(0)  # noqa: S311
    done: list[Stream] = []
    until = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < until:
            arrival = Arrival(
                at_s=0.0,
                prompt=prompts.take(chance.choice(PROMPT_TOKENS)),
                tokens=chance.choice(OUTPUT_TOKENS),
            )
            done.append(await stream(_ask(contender, arrival, deadline_s=120.0)))

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    served = [seen for seen in done if seen.error is None]
    return len(served) / (time.perf_counter() - began)


async def warm_up(contender: Contender, prompts: Prompts) -> None:
    """Send a burst that is not measured."""
    with alone(contender):
        arrival = [Arrival(at_s=0.0, prompt=prompts.take(64), tokens=16) for _ in range(CLIENTS)]
        await burst([_ask(contender, each, deadline_s=120.0) for each in arrival])


async def open_loop(contender: Contender, coming: Sequence[Arrival]) -> list[Stream]:
    """Send every request at its time; nobody waits longer than deadline and grace."""
    began = time.perf_counter()

    async def caller(arrival: Arrival) -> Stream:
        await asyncio.sleep(began + arrival.at_s - time.perf_counter())
        return await stream(_ask(contender, arrival, DEADLINE_S), timeout_s=DEADLINE_S + GRACE_S)

    return await asyncio.gather(*(caller(arrival) for arrival in coming))


def is_good(seen: Stream) -> bool:
    """Whether an answer came whole and within the record's bounds."""
    smooth = max(seen.gaps_s, default=0.0) <= _GAP_S
    return seen.error is None and seen.first_s <= _FIRST_S and smooth


def row(streams: Sequence[Stream], seconds: float) -> dict[str, float]:
    """Return the figures of one rate."""
    refused = [seen for seen in streams if seen.status in _REFUSALS]
    taken = [seen for seen in streams if seen.status not in _REFUSALS]
    expired = [
        seen for seen in taken if seen.status == 408 or "deadline" in (seen.error or "").lower()
    ]
    begun = [seen for seen in streams if seen.times]
    gaps = [gap for seen in begun for gap in seen.gaps_s]
    waits = [float(seen.headers.get("retry-after", "nan")) for seen in refused]
    late = [seen for seen in taken if seen.ended - seen.sent > DEADLINE_S + STEP_S]
    return {
        "good_s": sum(map(is_good, streams)) / seconds,
        "offered_s": len(streams) / seconds,
        "accepted": len(taken),
        "refused": len(refused),
        "refusal_p99_ms": 1e3 * _quantile([seen.ended - seen.sent for seen in refused], 0.99),
        "retry_after_s": median(waits) if waits else 0.0,
        "expired": len(expired),
        "late": len(late),
        "first_p50_ms": 1e3 * _quantile([seen.first_s for seen in begun], 0.5),
        "first_p99_ms": 1e3 * _quantile([seen.first_s for seen in begun], 0.99),
        "gap_p99_ms": 1e3 * _quantile(gaps, 0.99),
    }


def _quantile(values: Sequence[float], q: float) -> float:
    return quantile(values, q) if values else 0.0


async def measure_rates(
    chosen: Lineup, prompts: Prompts, *, rates: Sequence[float], seconds: float
) -> tuple[float, Mapping[float, Field], list[str]]:
    """Measure our capacity, then everybody at every multiple of it."""
    for contender in chosen.up:
        await warm_up(contender, prompts)
    found = await capacity(chosen.up[0], prompts, seconds)
    print(f"capacity {found:.2f} requests/s", flush=True)
    fields: dict[float, Field] = {}
    notes: list[str] = []
    for number, rate in enumerate(rates):
        coming = arrivals(prompts, rate * found, seconds, seed=number)
        for contender in chosen.up:
            with alone(contender):
                streams = await open_loop(contender, coming)
            measured = row(streams, seconds)
            shown = {key: round(value, 2) for key, value in measured.items()}
            print(f"{rate}x {contender.name:16} {shown}", flush=True)
            fields.setdefault(rate, {})[contender.name] = {1: measured}
            notes += _odd(f"{rate}x, {contender.name}", streams)
    return found, fields, notes


def _odd(where: str, streams: Sequence[Stream]) -> list[str]:
    """Say what went wrong that is no refusal and no deadline, and refusals without a time."""
    mute = [
        seen for seen in streams if seen.status in _REFUSALS and "retry-after" not in seen.headers
    ]
    broken = [
        seen.error
        for seen in streams
        if seen.error and seen.status not in {*_REFUSALS, 408} and "deadline" not in seen.error
    ]
    said = [f"{where}: {len(mute)} refusals without Retry-After"] if mute else []
    return [*said, *([f"{where}: {len(broken)} failed, e.g. {broken[0]}"] if broken else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of arrivals at each rate")
    parser.add_argument("--rates", default="0.5,0.75,1,1.5,2,4", help="multiples of capacity")
    parser.add_argument("--only", default="bf16", help="our variants, by comma")
    parser.add_argument("--peers", default="vllm", help="by comma")
    parser.add_argument("--wait", type=float, default=1.5, help="`max_wait_s` of ours")
    parser.add_argument("--subject", default="goodput", help="name of the results file")
    options = parser.parse_args()
    rates = [float(rate) for rate in options.rates.split(",")]
    before = machine()
    with lineup(options.only, options.peers, max_wait_s=options.wait) as chosen:
        chosen.start()
        prompts = Prompts(chosen.weights.tokenizer)
        reached, fields, odd = asyncio.run(
            measure_rates(chosen, prompts, rates=rates, seconds=options.seconds)
        )
    cases = [
        case
        for rate, measured in fields.items()
        for case in table_cases(
            f"arrivals at {rate:g}x capacity", MEASURES, measured, ours=chosen.ours
        )
    ]
    notes = [
        f"capacity {reached:.2f} requests/s: {CLIENTS} clients, closed loop, {chosen.ours[0]}",
        f"bounds: first text {_FIRST_S} s, gaps {_GAP_S} s",
        f"deadline {DEADLINE_S:g} s; a peer is not told, its callers leave {GRACE_S:g} s later",
        f"prompts of {PROMPT_TOKENS} tokens, outputs of {OUTPUT_TOKENS}",
        f"{options.seconds:g} s of arrivals at each rate",
    ]
    path = write_results(
        options.subject,
        {
            "machine": before,
            "versions": chosen.versions(),
            "rounds": 1,
            "settings": chosen.settings(),
            "failures": chosen.failures,
            "cases": cases,
            "notes": [*notes, *odd, *(f"failed: {each}" for each in chosen.failures)],
        },
    )
    print(path)


if __name__ == "__main__":
    main()
