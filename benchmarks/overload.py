"""Every workload with too much to do: what is still done in time, and for whom.

Open loop: requests come by a Poisson process, whatever became of those before, at multiples of a
capacity that a closed loop has measured just before. Each carries a deadline; nobody tries again.
What is counted are good answers (see `overload_cases`) that come while requests still come, after
the queue had time to fill. At the highest rate the same is done on the direct path.

Then a light tenant, alone, and beside another one whose `CALLERS` callers each wait for an answer
and come again as told: as a tenant of its own, and under the other's key, so without a fair
queue. The client is favoured by the system, so that its own delays are not the server's.

    make bench SUBJECT=overload
    python benchmarks/overload.py --workload vision --seconds 5   # one; the others' figures stay
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from formed import headpond
from harness import RESULTS, TRIES, Server, machine, median, quantile, versions, write_results
from overload_cases import CASES, REFUSED, Asking, Caller, Case, Seen
from tables import Field, Measure, table_cases

CALLERS = 500
LIGHT_PART, LIGHT_LEAST = 0.15, 2.0
"""The light tenant's rate: a part of capacity, and the least a second."""

KEYS = {"heavy": "key-of-the-heavy-tenant", "light": "key-of-the-light-tenant"}

LOADS = (
    Measure(key="good_s", unit="good/s"),
    Measure(key="offered_s", unit="offered/s"),
    Measure(key="refused", unit="refused"),
    Measure(key="refusal_p99_ms", unit="refusal p99 ms"),
    Measure(key="late", unit="408 or late"),
    Measure(key="wrong", unit="wrong"),
    Measure(key="p95_ms", unit="p95 ms"),
    Measure(key="pss_mib", unit="PSS MiB"),
    Measure(key="grown_mib", unit="grown MiB"),
)
FAIRNESS = (
    Measure(key="p50_ms", unit="p50 ms"),
    Measure(key="p95_ms", unit="p95 ms"),
    Measure(key="factor", unit="p95 against alone"),
    Measure(key="answered", unit="answered"),
    Measure(key="refused", unit="refused"),
)


async def capacity(case: Case, asking: Asking, caller: Caller, seconds: float) -> float:
    """Return the answers a second that a fixed number of clients get."""
    numbers, done = iter(range(10**9)), []
    patient = replace(caller, deadline_s=caller.deadline_s + 60.0)
    settle_s = case.settle_s / 2
    began_s = time.perf_counter()

    async def client() -> None:
        while time.perf_counter() < began_s + settle_s + seconds:
            done.append(await asking(next(numbers), patient))

    async with asyncio.TaskGroup() as group:
        for _ in range(case.clients):
            group.create_task(client())
            if case.live:
                await asyncio.sleep(0.2)
    kept = [each for each in done if each.status == 200]
    counted = [each for each in kept if 0.0 <= each.ended_s - began_s - settle_s < seconds]
    if not counted:
        raise RuntimeError(f"{case.name}: nobody was answered, e.g. {done[:1]}")
    return len(counted) / seconds


async def arrive(
    asking: Asking, caller: Caller, rate: float, seconds: float, seed: int
) -> list[Seen]:
    """Send requests of a Poisson process, and wait for all answers."""
    chance = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    tasks = []
    began_s = time.perf_counter()
    at_s = chance.expovariate(rate)
    while at_s < seconds:
        await asyncio.sleep(max(began_s + at_s - time.perf_counter(), 0.0))
        tasks.append(asyncio.create_task(asking(len(tasks) + 1000 * seed, caller)))
        at_s += chance.expovariate(rate)
    return await asyncio.gather(*tasks)


async def load_row(
    case: Case, asking: Asking, caller: Caller, server: Server, *, rate: float, seconds: float
) -> dict[str, float]:
    """Return the figures of one rate."""
    before_mib = rss_mib(server)
    peak = [before_mib]
    began_s = time.perf_counter()
    async with watched(server, peak):
        seen = await arrive(asking, caller, rate, case.settle_s + seconds, seed=round(10 * rate))
    from_s, to_s = began_s + case.settle_s, began_s + case.settle_s + seconds
    good = [each for each in seen if each.good and from_s <= each.ended_s < to_s]
    refused = [each.took_s for each in seen if each.status in {429, 503}]
    answered = [each.took_s for each in seen if each.status == 200]
    wrong = [each for each in seen if each.status not in {200, *REFUSED} or each.error]
    mute = [each for each in seen if each.status == 503 and math.isnan(each.retry_after_s)]
    if wrong or mute:
        print(
            "WRONG", Counter((each.status, each.error) for each in (*wrong, *mute)).most_common(4)
        )
    return {
        "good_s": len(good) / seconds,
        "offered_s": len(seen) / (case.settle_s + seconds),
        "refused": len(refused),
        "refusal_p99_ms": 1e3 * quantile(refused, 0.99) if refused else 0.0,
        "late": sum(each.status == 408 or (each.status == 200 and not each.good) for each in seen),
        "wrong": len(wrong) + len(mute),
        "p95_ms": 1e3 * quantile(answered, 0.95) if answered else 0.0,
        "pss_mib": server.pss_bytes() / 2**20,
        "grown_mib": max(peak) - before_mib,
    }


def rss_mib(server: Server) -> float:
    """Return the resident memory of the tree, shared pages counted each time."""
    total = 0
    for process in server.tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total / 2**20


@asynccontextmanager
async def watched(server: Server, peak: list[float]) -> AsyncIterator[None]:
    """Note the tree's memory every second."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(1.0)
            peak.append(await asyncio.to_thread(rss_mib, server))

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


@asynccontextmanager
async def flood(asking: Asking, caller: Caller, refusals: Counter[int]) -> AsyncIterator[None]:
    """Let `CALLERS` callers of one tenant each wait for an answer, again and again."""
    chance = random.Random(7)  # noqa: S311

    async def come(number: int) -> None:
        while True:
            seen = await asking(number, caller)
            number += CALLERS
            refusals[seen.status] += 1
            if seen.status != 200:
                wait_s = 1.0 if math.isnan(seen.retry_after_s) else seen.retry_after_s
                await asyncio.sleep(wait_s * chance.uniform(0.8, 1.2))

    coming = [asyncio.create_task(come(number)) for number in range(CALLERS)]
    try:
        await asyncio.sleep(4.0)
        yield
    finally:
        for each in coming:
            each.cancel()
        await asyncio.gather(*coming, return_exceptions=True)


async def fairness(
    asking: Asking, port: int, *, reached: float, seconds: float
) -> dict[str, dict[str, float]]:
    """Return the light tenant's figures: alone, beside the heavy one, and as one of it."""
    light = Caller(port=port, prefix="", key=KEYS["light"], deadline_s=60.0)
    heavy = replace(light, key=KEYS["heavy"])
    rate = max(LIGHT_PART * reached, LIGHT_LEAST)
    seen = {"light tenant alone": await arrive(asking, light, rate, seconds, seed=1)}
    outcomes: Counter[int] = Counter()
    async with flood(asking, heavy, outcomes):
        beside = await arrive(asking, light, rate, seconds, seed=2)
        seen[f"beside {CALLERS} callers of another tenant"] = beside
        same = await arrive(asking, heavy, rate, seconds, seed=2)
        seen[f"beside {CALLERS} callers of its own tenant"] = same
    print("the heavy tenant's outcomes:", dict(outcomes), flush=True)
    alone_s = quantile(_answered(seen["light tenant alone"]), 0.95)
    return {
        name: {
            "p50_ms": 1e3 * median(_answered(each)),
            "p95_ms": 1e3 * quantile(_answered(each), 0.95),
            "factor": quantile(_answered(each), 0.95) / alone_s,
            "answered": sum(one.status == 200 for one in each),
            "refused": sum(one.status != 200 for one in each),
        }
        for name, each in seen.items()
    }


def _answered(seen: Sequence[Seen]) -> list[float]:
    return [each.took_s for each in seen if each.status == 200] or [math.nan]


async def measure(
    case: Case, server: Server, options: argparse.Namespace
) -> tuple[list[dict[str, object]], str]:
    """Measure one workload on a server that runs; return its cases, and its capacity."""
    asking = case.asking()
    routed = Caller(port=options.port, prefix="", key=KEYS["heavy"], deadline_s=case.deadline_s)
    direct = replace(routed, prefix=f"/models/{case.model}")
    reached = await capacity(case, asking, routed, options.seconds)
    note = f"{case.name}: capacity {reached:.1f}/s with {case.clients} clients, closed loop"
    print(note, flush=True)
    rates = [float(each) for each in options.rates.split(",")]
    loads: Field = {}
    asked = [(rate, routed, "routed") for rate in rates] + [(rates[-1], direct, "direct")]
    for rate, caller, path in asked:
        row = await load_row(
            case, asking, caller, server, rate=rate * reached, seconds=options.seconds
        )
        keep(loads, f"{rate:g}x, {path}", row)
        await asyncio.sleep(1.0)
    cases = list(table_cases(f"{case.name}, load", LOADS, loads, ours=list(loads)))
    if not case.live and not options.no_fairness:
        fair: Field = {}
        rows = await fairness(asking, options.port, reached=reached, seconds=options.seconds)
        for name, row in rows.items():
            keep(fair, name, row)
        cases += table_cases(f"{case.name}, fairness", FAIRNESS, fair, ours=list(fair))
    return cases, note


def keep(field: Field, name: str, row: dict[str, float]) -> None:
    """Keep a row, and show it."""
    print(f"{name}: { {key: round(value, 2) for key, value in row.items()} }", flush=True)
    field[name] = {1: row}


@contextmanager
def favoured() -> Iterator[None]:
    """Let the system prefer this process, where it may be asked to."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    except PermissionError:
        print("the client is not favoured: its delays count as the server's", flush=True)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def started(case: Case, port: int, folder: Path) -> Server:
    """Start a server with one model, and two tenants."""
    settings = {"keys": [{"key": key, "tenant": tenant} for tenant, key in KEYS.items()]}
    server = headpond(port, {case.model: {**case.args, "settings": settings}}, folder)
    path = folder / "headpond.json"
    document = json.loads(path.read_text())
    document["applications"][0]["args"] = {"settings": settings}
    path.write_text(json.dumps(document))
    server.start()
    return server


def merged(subject: str, names: Sequence[str], cases: list[dict[str, object]]) -> list[object]:
    """Return these cases, and before them those of other workloads from earlier runs."""
    path = (TRIES if subject.startswith("try") else RESULTS) / f"{subject}.json"
    earlier = json.loads(path.read_text())["cases"] if path.is_file() else []
    kept = [each for each in earlier if each["scenario"].split(",")[0] not in names]
    return [*kept, *cases]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="", help="by comma; all unless said")
    parser.add_argument("--seconds", type=float, default=10.0, help="counted, of each case")
    parser.add_argument("--rates", default="0.5,1,2,4", help="multiples of capacity")
    parser.add_argument("--port", type=int, default=8390)
    parser.add_argument("--no-fairness", action="store_true")
    parser.add_argument("--subject", default="overload", help="name of the results file")
    options = parser.parse_args()
    asked = [each.strip() for each in options.workload.split(",") if each]
    chosen = [case for case in CASES if not asked or case.name in asked]
    before = machine()
    cases: list[dict[str, object]] = []
    notes: list[str] = []
    for case in chosen:
        with tempfile.TemporaryDirectory() as folder:
            server = started(case, options.port, Path(folder))
            try:
                with favoured():
                    found, note = asyncio.run(measure(case, server, options))
            finally:
                server.stop()
        cases += found
        notes.append(note)
    path = write_results(
        options.subject,
        {
            "machine": before,
            "versions": versions("ray", "torch", "onnxruntime"),
            "rounds": 1,
            "settings": {case.name: dict(case.args) for case in chosen},
            "cases": merged(options.subject, [case.name for case in chosen], cases),
            "notes": notes,
        },
    )
    print(path)


if __name__ == "__main__":
    main()
