"""The planner's predictions beside measurements: private memory of replicas, and floors.

Every bundle is served by `headpond up`, one replica each with two threads and 64 MiB of state.
Memory is what belongs to a replica's process alone (`Private_*` of its `smaps_rollup`): what one
replica more takes. Latency is the mean of a device phase over requests that come one at a time,
as `/metrics` has it; the floor is planned from the same dimensions.

    python planning.py                 every group; prints the tables of docs/planning.md
    python planning.py demo others     these groups; the others' rows stay as they are
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import httpx2
import psutil
import yaml

from harness import RESULTS, Server, machine, versions, write_results
from headpond.bundle.document import read_manifest
from headpond.capacity import Load, plan_capacity
from headpond.devices import Device
from headpond.ray_env import free_port
from headpond.registry import workload
from headpond.telemetry.scrape import Interval, Scrape
from planning_calls import BUNDLES, ask, fill, holds, load_of
from report import scenario_tables

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
MEMORY, FLOORS = "memory of a replica", "floors"

NOTES = (
    "memory is private to a replica, after requests that fill what generation holds, 64 MiB",
    f"phases are means of {TIMED} requests, one at a time, {THREADS} threads",
)
Case = Mapping[str, object]


@dataclass(kw_only=True)
class Measured:
    """What was found of one bundle."""

    idle_bytes: int
    full_bytes: int
    phases_s: Mapping[str, float]
    work: Mapping[str, int]


def config(bundles: Sequence[str], port: int) -> Mapping[str, object]:
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
                "bundle": str(BUNDLES / name),
                "alias": name,
                "state_bytes": STATE_BYTES,
                "threads": THREADS,
            },
        }
        for name in bundles
    ]
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
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


def scrape(http: httpx2.Client) -> Scrape:
    """Read the router's metrics, which hold its replicas'."""
    return Scrape.parse(http.get("/metrics").text, time.monotonic())


def measure(http: httpx2.Client, server: Server, name: str) -> Measured:
    """Measure one bundle that is served."""
    record = workload(read_manifest(BUNDLES / name).workload)
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
    if holds(name):
        fill(http, name)
    full = private_bytes(server, name)
    return Measured(idle_bytes=idle, full_bytes=full, phases_s=phases, work=work)


def cases(name: str, found: Measured) -> Iterator[Case]:
    """Yield what was planned and what was measured of one bundle."""
    manifest = read_manifest(BUNDLES / name)
    record = workload(manifest.workload)
    plan = plan_capacity(
        record,
        manifest,
        Device.find("cpu"),
        Load.parse(load_of(name, found.work), record, manifest),
        state_bytes=STATE_BYTES if holds(name) else 0,
        most_at_once=16,
        threads=THREADS,
        efficiency=1.0,
    )
    memory = plan.memory
    yield case(MEMORY, name, "process MiB", memory.process_bytes / MIB)
    yield case(MEMORY, name, "weights MiB", memory.static_bytes / MIB)
    yield case(MEMORY, name, "state MiB", memory.state_bytes / MIB)
    yield case(MEMORY, name, "planned MiB", memory.full_bytes / MIB)
    yield case(MEMORY, name, "idle MiB", found.idle_bytes / MIB)
    yield case(MEMORY, name, "measured MiB", found.full_bytes / MIB)
    yield case(MEMORY, name, "planned/measured", memory.full_bytes / found.full_bytes)
    for phase, floor_s in plan.phase_floor_s.items():
        measured_s = found.phases_s[phase]
        if not measured_s:
            continue  # the whole phase is part of another's last step
        row = f"{name}, {phase}"
        yield case(FLOORS, row, "floor ms", floor_s * 1000)
        yield case(FLOORS, row, "measured ms", measured_s * 1000)
        yield case(FLOORS, row, "floor/measured", floor_s / measured_s)


def case(scenario: str, variant: str, unit: str, value: float) -> Case:
    """Return one figure as the report takes it."""
    nothing: dict[str, object] = {"peers": {}, "ratio": {}, "spread": {}, "peer_quality": {}}
    named = {"scenario": scenario, "variant": variant, "unit": unit, "ours": value}
    return {**named, **nothing, "floor": None, "quality": None}


def run(bundles: Sequence[str]) -> Iterator[Case]:
    """Serve bundles and yield their cases."""
    port = free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(config(bundles, port), file)
        file.flush()
        server = Server(
            name=f"planning-{port}",
            command=[sys.executable, "-m", "headpond.cli", "up", file.name],
            port=port,
            ready_path="/readyz",
            ready_text="Ready at",
        )
        try:
            server.start()
            time.sleep(2)
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
                for name in bundles:
                    yield from cases(name, measure(http, server, name))
        finally:
            server.stop()


def kept_with(new: Sequence[Case]) -> list[Case]:
    """Return the kept cases of bundles that were not measured now, with the new ones."""
    path = RESULTS / "planning.json"
    kept: list[Case] = json.loads(path.read_text())["cases"] if path.exists() else []
    rows = {(each["scenario"], each["variant"]): each for each in new}
    both = [*(each for each in kept if (each["scenario"], each["variant"]) not in rows), *new]
    order = [*DEMO, *OTHERS]

    def place(each: Case) -> tuple[bool, int]:
        bundle = str(each["variant"]).partition(",")[0]
        return each["scenario"] == FLOORS, order.index(bundle)

    return sorted(both, key=place)


def main() -> None:
    """Measure group after group, and write what there is."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is stopped too
    described = {
        "machine": machine(),
        "versions": versions("ray", "torch", "onnxruntime"),
        "rounds": 1,
        "notes": NOTES,
    }
    found: list[Case] = []
    for group in sys.argv[1:] or GROUPS:
        found += run(GROUPS[group])
        write_results("planning", {**described, "cases": kept_with(found)})
    print("\n".join(scenario_tables(kept_with(found))))


if __name__ == "__main__":
    main()
