"""What the benchmarks of formed-batch workloads share: servers, scenarios, rounds, rows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import Server, median, quantile
from load import Connection, Sample, Target, send_all
from tables import Field, Measure, table_cases

HERE = Path(__file__).parent

SETTLE_S = 1.0
"""A server that stood still is first given time for timers and health checks that are overdue."""

MEASURES = (
    Measure(key="items_s", unit="items/s"),
    Measure(key="p50_ms", unit="p50 ms"),
    Measure(key="p99_ms", unit="p99 ms"),
    Measure(key="cpu_ms", unit="CPU ms an item"),
    Measure(key="pss_mib", unit="PSS MiB"),
)


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One server, and how a request to it looks.

    Attributes:
        name: In the results.
        server: The process tree.
        target: Makes a request of one scenario's item, or items.
        read: Reads the answer for the check of quality.
        title: Of our replica's process, where one server holds several; else empty.
        others: Titles of the processes that are not this one's.
        settings: What it was started with.
    """

    name: str
    server: Server
    target: Callable[[object], Target]
    read: Callable[[bytes], object]
    ours: bool = False
    others: tuple[str, ...] = ()
    settings: str = ""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is sent.

    Attributes:
        name: In the results.
        items: The bodies' contents, in order.
        clients: Requests in flight.
        each: Items in one request, by which rates are counted.
        beside: Contents of a request that another client repeats meanwhile; None for none.
    """

    name: str
    items: Sequence[object]
    clients: int
    each: int = 1
    beside: object = None


@dataclass(kw_only=True)
class Run:
    """Rows by scenario, and what each contender answered first."""

    fields: dict[str, Field] = field(default_factory=dict)
    answers: dict[str, dict[str, list[object]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def config(port: int, models: Mapping[str, Mapping[str, object]], path: Path) -> Path:
    """Write the Serve config of our models, by alias, and return its path."""
    router = {
        "name": "router",
        "route_prefix": "/",
        "import_path": "headpond.router:build",
        "args": {},
        "deployments": [
            {
                "name": "Router",
                "user_config": {"aliases": {alias: {f"app-{alias}": 1} for alias in models}},
            }
        ],
    }
    apps = [
        {
            "name": f"app-{alias}",
            "route_prefix": f"/models/{alias}",
            "import_path": "headpond.deployment:build",
            "args": {"alias": alias, "threads": 2, **args},
        }
        for alias, args in models.items()
    ]
    path.write_text(
        json.dumps(
            {
                "proxy_location": "HeadOnly",
                "http_options": {"host": "127.0.0.1", "port": port},
                "applications": [router, *apps],
            }
        )
    )
    return path


def headpond(port: int, models: Mapping[str, Mapping[str, object]], folder: Path) -> Server:
    """Return our server with these models."""
    written = config(port, models, folder / "headpond.json")
    return Server(
        name="headpond",
        command=[
            *(sys.executable, "-m", "headpond.cli", "up", str(written)),
            *("--cpus", str(4 + 2 * len(models))),
        ],
        port=port,
        ready_path="/readyz",
        ready_text="Ready at",
        env={"HEADPOND_HOME": str(HERE.parent)},
    )


@contextmanager
def started(contenders: Sequence[Contender], run: Run) -> Iterator[list[Contender]]:
    """Start every server once; peers stand still until they are measured."""
    servers = {id(each.server): each.server for each in contenders}
    up: set[int] = set()
    try:
        for key, server in servers.items():
            try:
                server.start()
            except RuntimeError as error:
                run.failures.append(str(error))
                print("FAILED", error, flush=True)
                continue
            up.add(key)
            print(f"{server.name} is up", flush=True)
            server.pause()
        yield [each for each in contenders if id(each.server) in up]
    finally:
        for server in servers.values():
            server.stop()


def rounds(
    contenders: Sequence[Contender], scenarios: Sequence[Scenario], count: int, run: Run
) -> None:
    """Measure everybody in every scenario, alternating; round 0 warms up."""
    for number in range(count + 1):
        for scenario in scenarios:
            for contender in contenders:
                contender.server.resume()
                try:
                    row, answers = asyncio.run(_measure(contender, scenario))
                except (RuntimeError, OSError, asyncio.IncompleteReadError) as error:
                    run.failures.append(f"{scenario.name}, {contender.name}: {error!r}")
                    print("FAILED", run.failures[-1], flush=True)
                    continue
                finally:
                    contender.server.pause()
                shown = {key: round(value, 2) for key, value in row.items()}
                print(f"round {number} {scenario.name:28} {contender.name:24} {shown}", flush=True)
                if number:
                    field = run.fields.setdefault(scenario.name, {})
                    field.setdefault(contender.name, {})[number] = row
                run.answers.setdefault(scenario.name, {})[contender.name] = answers


async def _measure(
    contender: Contender, scenario: Scenario
) -> tuple[dict[str, float], list[object]]:
    loop = asyncio.get_running_loop()
    targets = [contender.target(item) for item in scenario.items]
    await asyncio.sleep(SETTLE_S)
    async with _beside(contender, scenario):
        cpu_s, began = contender.server.cpu_s(contender.others), loop.time()
        samples = await send_all(targets, clients=scenario.clients)
        seconds = loop.time() - began
        cpu_s = contender.server.cpu_s(contender.others) - cpu_s
    bad = [sample for sample in samples if sample.status != 200]
    if bad:
        raise RuntimeError(f"{len(bad)} answers were {bad[0].status}: {bad[0].body[:200]!r}")
    count = len(samples) * scenario.each
    row = {
        "items_s": count / seconds,
        **_latency(samples),
        "cpu_ms": 1e3 * cpu_s / count,
        "pss_mib": contender.server.pss_bytes(contender.others) / 2**20,
    }
    return row, [contender.read(sample.body) for sample in samples]


def _latency(samples: Sequence[Sample]) -> dict[str, float]:
    times = [1e3 * sample.total_s for sample in samples]
    return {"p50_ms": median(times), "p99_ms": quantile(times, 0.99)}


@contextlib.asynccontextmanager
async def _beside(contender: Contender, scenario: Scenario):  # type: ignore[no-untyped-def]
    """Let another client repeat a request for as long as this lasts."""
    if scenario.beside is None:
        yield
        return
    target = contender.target(scenario.beside)

    async def repeat() -> None:
        connection = Connection(target)
        while True:
            await connection.send()

    task = asyncio.create_task(repeat())
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def document(
    run: Run,
    contenders: Sequence[Contender],
    *,
    before: Mapping[str, object],
    rounds: int,
    versions: Mapping[str, str],
    quality: Mapping[str, str],
) -> dict[str, object]:
    """Return what is written to the results."""
    ours = [each.name for each in contenders if each.ours]
    return {
        "machine": before,
        "versions": versions,
        "rounds": rounds,
        "settings": {each.name: each.settings for each in contenders},
        "cases": [
            case
            for scenario, field in run.fields.items()
            for case in table_cases(scenario, MEASURES, field, ours=ours, quality=quality)
        ],
        "notes": [f"failed: {each}" for each in run.failures],
    }
