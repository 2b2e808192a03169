"""Overhead of the direct and the routed path, beside what people use for the same job.

Everybody echoes the same JSON: whole, or as server-sent events, as fast as they go or 5 ms
apart. CPU is
that of the server's whole process tree, less what the tree uses when idle, over the work
done in the round; for streams it includes what opening the stream costs. Servers run one after another in each round, alternating, with the load client on
the same machine; only ratios within this run mean something.

    make bench SUBJECT=router
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from environments import ROUTER
from harness import Server, machine, median, quantile, versions, write_results
from headpond.testing.echo import write_echo_bundle
from headpond.testing.install import declare_workload
from load import Target, closed_loop

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is sent: streams of these lengths (0 is a whole answer), so far apart."""

    lengths: tuple[int, ...]
    clients: int
    step_ms: int


SCENARIOS = (
    Scenario(lengths=(0,), clients=16, step_ms=0),
    Scenario(lengths=(256,), clients=8, step_ms=0),
    Scenario(lengths=(32, 256), clients=8, step_ms=5),
)


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One server, and where its two calls are."""

    server: Server
    target_path: str = "/v1/echo"


def body(chunks: int) -> bytes:
    """The request: a stream of so many events, or a whole answer for none."""
    fields: dict[str, object] = {"model": "echo", "text": "the quick brown fox"}
    if chunks:
        fields |= {"stream": True, "chunks": chunks}
    return json.dumps(fields).encode()


def echo_config(port: int, folder: Path, *, step_ms: float) -> Path:
    """Write an echo bundle and the Serve config that serves it."""
    bundle = write_echo_bundle(folder / "echo", step_ms=step_ms)
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "applications": [
            {
                "name": "router",
                "route_prefix": "/",
                "import_path": "headpond.router:build",
                "args": {},
                "deployments": [
                    {"name": "Router", "user_config": {"aliases": {"echo": {"echo": 1}}}}
                ],
            },
            {
                "name": "echo",
                "route_prefix": "/models/echo",
                "import_path": "headpond.deployment:build",
                "args": {"bundle": str(bundle), "alias": "echo", "max_slots": 64},
            },
        ],
    }
    path = folder / "echo.json"
    path.write_text(json.dumps(config))
    return path


def contenders(folder: Path, scenario: Scenario) -> dict[str, Contender]:
    python, peer = sys.executable, ROUTER.python
    kind = "stream" if any(scenario.lengths) else "unary"
    pace = {"STEP_MS": str(scenario.step_ms)}
    config = echo_config(8104, folder, step_ms=scenario.step_ms)
    declared = declare_workload(folder / "declared", "echo", "headpond.testing.echo:record")
    headpond = Server(
        name="headpond",
        command=[python, "-m", "headpond.cli", "up", str(config)],
        port=8104,
        ready_path="/readyz",
        env={"PYTHONPATH": str(declared)},
    )
    return {
        "fastapi": Contender(
            server=Server(
                name="fastapi",
                command=[peer, str(HERE / "peers/fastapi_echo.py"), "8101"],
                port=8101,
                ready_path="/readyz",
                env=pace,
            )
        ),
        "ray-serve": Contender(
            server=Server(
                name="ray-serve",
                command=[python, str(HERE / "peers/serve_echo.py"), "8102"],
                port=8102,
                ready_path="/readyz",
                env={"PYTHONPATH": str(HERE / "peers"), **pace},
            )
        ),
        "litserve": Contender(
            server=Server(
                name="litserve",
                command=[peer, str(HERE / "peers/litserve_echo.py"), "8103", kind],
                port=8103,
                ready_path="/readyz",
                env=pace,
            )
        ),
        "direct": Contender(server=headpond, target_path="/models/echo/v1/echo"),
        "routed": Contender(server=headpond),
    }


async def idle_cpu(server: Server, seconds: float) -> float:
    """CPU seconds per second that the tree uses with no request."""
    before, at = server.cpu_s(), time.perf_counter()
    await asyncio.sleep(seconds)
    return (server.cpu_s() - before) / (time.perf_counter() - at)


async def measure(
    contender: Contender, *, chunks: int, clients: int, seconds: float, idle: float
) -> dict[str, float]:
    target = Target(port=contender.server.port, path=contender.target_path, body=body(chunks))
    await closed_loop(target, clients=clients, seconds=0.5)
    before, at = contender.server.cpu_s(), time.perf_counter()
    samples = await closed_loop(target, clients=clients, seconds=seconds)
    took = time.perf_counter() - at
    cpu = max(contender.server.cpu_s() - before - idle * took, 0.0)
    bad = [sample for sample in samples if sample.status != 200]
    if bad:
        raise RuntimeError(f"{contender.server.name}: {len(bad)} answers of {bad[0].status}")
    if any(sample.events < chunks for sample in samples):
        raise RuntimeError(f"{contender.server.name}: a stream was short")
    work = len(samples) * max(chunks, 1)
    return {
        "rate": len(samples) / took,
        "cpu_ms": 1e3 * cpu / work,
        "p50_ms": 1e3 * quantile([sample.total_s for sample in samples], 0.5),
        "p99_ms": 1e3 * quantile([sample.total_s for sample in samples], 0.99),
    }


Rows = dict[str, list[dict[str, float]]]
"""Each contender's measurements, one a round."""


async def compare(
    scenario: Scenario, *, rounds: int, seconds: float, folder: Path
) -> dict[int, Rows]:
    """Measure every contender at every stream length, alternating."""
    field, lengths = contenders(folder, scenario), scenario.lengths
    servers = list({id(c.server): c.server for c in field.values()}.values())
    results: dict[int, Rows] = {chunks: {name: [] for name in field} for chunks in lengths}
    try:
        for server in servers:
            server.start()
        await asyncio.sleep(5)
        idle = {server.name: await idle_cpu(server, 10) for server in servers}
        print("idle CPU s/s:", {name: round(rate, 3) for name, rate in idle.items()})
        for number, chunks, name in product(range(rounds), lengths, field):
            contender = field[name]
            row = await measure(
                contender,
                chunks=chunks,
                clients=scenario.clients,
                seconds=seconds,
                idle=idle[contender.server.name],
            )
            row["pss_bytes"] = contender.server.pss_bytes()
            results[chunks][name].append(row)
            shown = {key: round(value, 3) for key, value in row.items()}
            print(f"round {number}, {chunks} events, {name:10} {shown}", flush=True)
    finally:
        for server in servers:
            server.stop()
    return results


def case(name: str, unit: str, key: str, ours: str, results: Rows) -> dict[str, object]:
    peers = [peer for peer in results if peer not in ("direct", "routed")]
    mine = [row[key] for row in results[ours]]
    ratios = {
        peer: [a / b[key] for a, b in zip(mine, results[peer], strict=True) if b[key]]
        for peer in peers
    }
    return {
        "case": name,
        "unit": unit,
        "ours": median(mine),
        "peers": {peer: median([row[key] for row in results[peer]]) for peer in peers},
        "ratio": {peer: median(values) for peer, values in ratios.items() if values},
        "spread": {peer: [min(v), max(v)] for peer, v in ratios.items() if v},
        "cpu_per_unit": median([row["cpu_ms"] for row in results[ours]]) / 1e3,
        "pss_bytes": median([row["pss_bytes"] for row in results[ours]]),
        "floor": None,
        "quality": "bodies and event counts checked on every answer",
    }


def cases_of(scenario: Scenario, chunks: int, results: Rows) -> Iterable[dict[str, object]]:
    kind = f"{chunks} events, {scenario.step_ms} ms apart" if chunks else "echo"
    work = "event" if chunks else "request"
    for ours in ("direct", "routed"):
        label = f"{kind}, {scenario.clients} clients, {ours}"
        yield case(label, f"CPU ms/{work}", "cpu_ms", ours, results)
        yield case(label, "requests/s", "rate", ours, results)
        yield case(label, "p50 ms", "p50_ms", ours, results)
        yield case(label, "p99 ms", "p99_ms", ours, results)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    ROUTER.ensure()
    before = machine()
    cases: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for scenario in SCENARIOS:
            measured = asyncio.run(
                compare(
                    scenario,
                    rounds=options.rounds,
                    seconds=options.seconds,
                    folder=Path(folder),
                )
            )
            for chunks, results in measured.items():
                cases += list(cases_of(scenario, chunks, results))
    path = write_results(
        "router",
        {
            "machine": before,
            "versions": versions("ray", "fastapi", "uvicorn", "starlette", "litserve", "pydantic"),
            "rounds": options.rounds,
            "cases": cases,
        },
    )
    print(path)


if __name__ == "__main__":
    main()
