"""Overhead of the direct and the routed path, beside what people use for the same job.

Everybody echoes the same JSON, whole or as 32 server-sent events 5 ms apart. CPU is that of
the server's whole process tree, less what the tree uses when idle, over the work done in
the round. Servers run one after another in each round, alternating, with the load client on
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import Server, machine, median, quantile, versions, write_results
from headpond.testing.echo import write_echo_bundle
from headpond.testing.install import declare_workload
from load import Target, closed_loop

HERE = Path(__file__).parent
PEER_PYTHON = Path(".bench/router/bin/python")
CHUNKS = 32
STEP_MS = 5


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One server, and where its two calls are."""

    server: Server
    target_path: str = "/v1/echo"
    api_key: str | None = None


def body(*, stream: bool) -> bytes:
    fields: dict[str, object] = {"model": "echo", "text": "the quick brown fox", "stream": stream}
    if stream:
        fields["chunks"] = CHUNKS
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


def contenders(folder: Path, *, stream: bool) -> dict[str, Contender]:
    python, peer = sys.executable, str(PEER_PYTHON)
    kind = "stream" if stream else "unary"
    config = echo_config(8104, folder, step_ms=STEP_MS if stream else 0)
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
            )
        ),
        "ray-serve": Contender(
            server=Server(
                name="ray-serve",
                command=[python, str(HERE / "peers/serve_echo.py"), "8102"],
                port=8102,
                ready_path="/readyz",
                env={"PYTHONPATH": str(HERE / "peers")},
            )
        ),
        "litserve": Contender(
            server=Server(
                name="litserve",
                command=[peer, str(HERE / "peers/litserve_echo.py"), "8103", kind],
                port=8103,
                ready_path="/readyz",
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
    contender: Contender, *, stream: bool, clients: int, seconds: float, idle: float
) -> dict[str, float]:
    target = Target(
        port=contender.server.port, path=contender.target_path, body=body(stream=stream)
    )
    await closed_loop(target, clients=clients, seconds=0.5)
    before, at = contender.server.cpu_s(), time.perf_counter()
    samples = await closed_loop(target, clients=clients, seconds=seconds)
    took = time.perf_counter() - at
    cpu = max(contender.server.cpu_s() - before - idle * took, 0.0)
    bad = [sample for sample in samples if sample.status != 200]
    if bad:
        raise RuntimeError(f"{contender.server.name}: {len(bad)} answers of {bad[0].status}")
    if stream and any(sample.events < CHUNKS for sample in samples):
        raise RuntimeError(f"{contender.server.name}: a stream was short")
    work = sum(sample.events for sample in samples) if stream else len(samples)
    return {
        "rate": len(samples) / took,
        "cpu_ms": 1e3 * cpu / work,
        "p50_ms": 1e3 * quantile([sample.total_s for sample in samples], 0.5),
        "p99_ms": 1e3 * quantile([sample.total_s for sample in samples], 0.99),
    }


async def compare(
    *, stream: bool, clients: int, rounds: int, seconds: float, folder: Path
) -> dict[str, list[dict[str, float]]]:
    field = contenders(folder, stream=stream)
    servers = list({id(c.server): c.server for c in field.values()}.values())
    results: dict[str, list[dict[str, float]]] = {name: [] for name in field}
    try:
        for server in servers:
            server.start()
        await asyncio.sleep(5)
        idle = {server.name: await idle_cpu(server, 5) for server in servers}
        print("idle CPU s/s:", {name: round(rate, 3) for name, rate in idle.items()})
        for number in range(rounds):
            for name, contender in field.items():
                row = await measure(
                    contender,
                    stream=stream,
                    clients=clients,
                    seconds=seconds,
                    idle=idle[contender.server.name],
                )
                row["pss_bytes"] = contender.server.pss_bytes()
                results[name].append(row)
                shown = {key: round(value, 3) for key, value in row.items()}
                print(f"round {number} {name:10} {shown}", flush=True)
    finally:
        for server in servers:
            server.stop()
    return results


def case(
    name: str, unit: str, key: str, ours: str, results: Mapping[str, list[dict[str, float]]]
) -> dict[str, object]:
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    before = machine()
    cases: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for stream, clients in ((False, 16), (True, 8)):
            results = asyncio.run(
                compare(
                    stream=stream,
                    clients=clients,
                    rounds=options.rounds,
                    seconds=options.seconds,
                    folder=Path(folder),
                )
            )
            kind = f"stream of {CHUNKS} events" if stream else "echo"
            work = "event" if stream else "request"
            for ours in ("direct", "routed"):
                label = f"{kind}, {clients} clients, {ours}"
                cases.append(case(label, f"CPU ms/{work}", "cpu_ms", ours, results))
                cases.append(case(label, "requests/s", "rate", ours, results))
                cases.append(case(label, "p50 ms", "p50_ms", ours, results))
                cases.append(case(label, "p99 ms", "p99_ms", ours, results))
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
