"""The planner's predictions beside measurements: private memory of replicas, and floors.

Every bundle is served by `headpond up`, one replica each with two threads. Memory is what
belongs to a replica's process alone (`Private_*` of its `smaps_rollup`): what one replica more
takes. Latency is the mean of a device phase over requests that come one at a time, as
`/metrics` has it; the floor is planned from the same dimensions.

    python planning.py                 every group, into results/planning.json
    python planning.py demo others     these groups; written after each
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import yaml

from harness import Server, machine, versions, write_results
from headpond.bundle.document import read_manifest
from headpond.capacity import Load, plan_capacity
from headpond.devices import Device
from headpond.registry import workload
from headpond.telemetry.scrape import Interval, Scrape

HOME = Path(__file__).parent.parent
PORT = 8467
THREADS = 2
STATE_BYTES = 64 * 2**20
WARM, TIMED = 3, 12
MIB = 2**20

DEMO = (
    "smollm2-135m-instruct",
    "all-minilm-l6-v2",
    "minilm-maxsim",
    "efficientnet-lite0",
    "whisper-tiny-en",
    "streaming-words",
    "tinysd-digits",
)
OTHERS = (
    "smollm2-135m-instruct-int8",
    "smollm2-135m-instruct-int4",
    "all-minilm-l6-v2-fp32",
    "all-minilm-l6-v2-int8",
    "all-minilm-l6-v2-int8-onnx",
)
GROUPS = {"demo": DEMO, "others": OTHERS}
PROMPT_TOKENS, OUTPUT_TOKENS = 128, 64
STEPS, PASSES = 20, 2
FILL = 10
"""Prompts of 300 tokens: more than 64 MiB hold."""

NOTES = (
    "memory is private to a replica; full is after prompts that fill its state, 64 MiB",
    f"phases are means of {TIMED} requests, one at a time, {THREADS} threads",
)


@dataclass(kw_only=True)
class Measured:
    """What was found of one bundle."""

    idle_bytes: int
    full_bytes: int
    phases_s: Mapping[str, float]
    work: Mapping[str, int]


def config(bundles: Sequence[str]) -> Mapping[str, object]:
    """Return a Serve config of a router and one replica of each bundle."""
    router = {
        "name": "router",
        "route_prefix": "/",
        "import_path": "headpond.router:build",
        "args": {"settings": {"metrics_open": True}},
        "deployments": [
            {
                "name": "Router",
                "user_config": {"aliases": {name: {name: 100} for name in bundles}},
            }
        ],
    }
    models = [
        {
            "name": name,
            "route_prefix": f"/models/{name}",
            "import_path": "headpond.deployment:build",
            "args": {
                "bundle": str(HOME / "bundles" / name),
                "alias": name,
                "state_bytes": STATE_BYTES,
                "threads": THREADS,
            },
        }
        for name in bundles
    ]
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": PORT},
        "applications": [router, *models],
    }


def private_bytes(server: Server, name: str) -> int:
    """Return what belongs to a model's replica alone."""
    for process in server.tree():
        try:
            if f"ServeReplica:{name}:" in " ".join(process.cmdline()):
                return int(process.memory_full_info().uss)
        except psutil.NoSuchProcess:
            continue
    raise RuntimeError(f"{name} has no replica")


def body(name: str, number: int, prompt_tokens: int) -> tuple[str, dict[str, Any]]:
    """Return the route and the body of one request of one item."""
    manifest = read_manifest(HOME / "bundles" / name)
    route = workload(manifest.workload).routes[0]
    if manifest.workload == "generation":
        ids = random.Random(number).choices(range(1000, 40000), k=prompt_tokens)  # noqa: S311
        fields: dict[str, Any] = {"prompt": ids, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
        return "/v1/completions", {**fields, "temperature": 0, "model": name}
    fields = dict(route.example)
    if manifest.workload == "embedding":
        fields["input"] = fields["input"][:1]
    if manifest.workload == "reranking":
        fields |= {"documents": fields["documents"][:1], "top_n": 1}
    if manifest.workload == "diffusion":
        fields |= {"num_inference_steps": STEPS, "guidance_scale": 4}
    return route.path, {**fields, "model": name}


def ask(http: httpx2.Client, name: str, number: int, prompt_tokens: int = PROMPT_TOKENS) -> None:
    """Send one request and wait for its answer."""
    path, fields = body(name, number, prompt_tokens)
    answer = http.post(path, json=fields)
    if answer.status_code != 200:
        raise RuntimeError(f"{name}: {answer.status_code} {answer.text[:300]}")


def scrape(http: httpx2.Client) -> Scrape:
    """Read the router's metrics, which hold its replicas'."""
    return Scrape.parse(http.get("/metrics").text, time.monotonic())


def measure(http: httpx2.Client, server: Server, name: str) -> Measured:
    """Measure one bundle that is served."""
    record = workload(read_manifest(HOME / "bundles" / name).workload)
    idle = private_bytes(server, name)
    for number in range(WARM):
        ask(http, name, number)
    before = scrape(http)
    for number in range(WARM, WARM + TIMED):
        ask(http, name, number)
    look = Interval(before=before, after=scrape(http))
    phases = {
        phase.name: look.rate("headpond_phase_seconds_sum", model=name, phase=phase.name)
        / look.rate("headpond_phase_seconds_count", model=name, phase=phase.name)
        for phase in record.phases
        if phase.kind.value == "device"
    }
    work = {
        unit.name: round(
            look.rate("headpond_work_total", model=name, unit=unit.name) * look.seconds / TIMED
        )
        for unit in record.units
    }
    if record.name == "generation":
        with ThreadPoolExecutor(FILL) as pool:
            list(pool.map(lambda number: ask(http, name, 100 + number, 300), range(FILL)))
    full = private_bytes(server, name)
    return Measured(idle_bytes=idle, full_bytes=full, phases_s=phases, work=work)


def load_of(name: str, work: Mapping[str, int]) -> str:
    """Return the dimensions of the requests that were sent."""
    kind = read_manifest(HOME / "bundles" / name).workload
    return {
        "generation": f"prompt_tokens={PROMPT_TOKENS} output_tokens={OUTPUT_TOKENS}",
        "embedding": f"tokens={work.get('input_tokens', 0)}",
        "reranking": f"tokens={work.get('input_tokens', 0)}",
        "vision": "images=1",
        "speech": f"audio_ms={work.get('audio_ms', 0)}",
        "diffusion": f"forwards={STEPS} steps={STEPS} passes={PASSES} sources=0",
    }[kind]


def cases(name: str, found: Measured) -> Iterator[dict[str, object]]:
    """Yield what was planned and what was measured of one bundle."""
    manifest = read_manifest(HOME / "bundles" / name)
    record = workload(manifest.workload)
    load = Load.parse(load_of(name, found.work), record, manifest)
    plan = plan_capacity(
        record,
        manifest,
        Device.find("cpu"),
        load,
        state_bytes=STATE_BYTES,
        most_at_once=16,
        threads=THREADS,
        efficiency=1.0,
    )
    holds = record.name == "generation"
    planned = [plan.memory.idle_bytes / MIB, found.idle_bytes / MIB]
    if holds:
        planned += [plan.memory.full_bytes / MIB, found.full_bytes / MIB]
    units = ("planned MiB", "measured MiB", "planned full MiB", "measured full MiB")
    for unit, value in zip(units, planned, strict=False):
        yield case("memory of a replica", name, unit, value)
    yield case("memory of a replica", name, "planned/measured", planned[0] / planned[1])
    for phase, floor_s in plan.phase_floor_s.items():
        measured_s = found.phases_s[phase]
        if not measured_s:
            continue  # the whole phase is part of another's last step
        row = f"{name}, {phase}"
        yield case("floors", row, "floor ms", floor_s * 1000)
        yield case("floors", row, "measured ms", measured_s * 1000)
        yield case("floors", row, "floor/measured", floor_s / measured_s)


def case(scenario: str, variant: str, unit: str, value: float) -> dict[str, object]:
    """Return one figure as the report takes it."""
    nothing: dict[str, object] = {"peers": {}, "ratio": {}, "spread": {}, "peer_quality": {}}
    named = {"scenario": scenario, "variant": variant, "unit": unit, "ours": value}
    return {**named, **nothing, "floor": None, "quality": None}


def run(bundles: Sequence[str]) -> Iterator[dict[str, object]]:
    """Serve bundles and yield their cases."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(config(bundles), file)
        file.flush()
        server = Server(
            name="planning",
            command=[sys.executable, "-m", "headpond.cli", "up", file.name],
            port=PORT,
            ready_path="/readyz",
            ready_text="Ready at",
        )
        try:
            server.start()
            time.sleep(2)
            with httpx2.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=120) as http:
                for name in bundles:
                    yield from cases(name, measure(http, server, name))
        finally:
            server.stop()


def main() -> None:
    """Measure group after group, and write what there is."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is stopped too
    before = machine()
    found: list[dict[str, object]] = []
    for group in sys.argv[1:] or GROUPS:
        found += run(GROUPS[group])
        write_results(
            "planning",
            {
                "machine": before,
                "versions": versions("ray", "torch", "onnxruntime"),
                "rounds": 1,
                "cases": found,
                "notes": NOTES,
            },
        )


if __name__ == "__main__":
    main()
