"""Mixed traffic for a while, with cancellations and replicas that are killed; then, what is left.

    python benchmarks/soak.py --minutes 20

The demo configuration serves every workload: chats, pictures, streams of both, sound in files
and in real time, vectors, rankings, classes, and a batch now and then. One caller in five leaves
early, some ask what is refused or give no time. In the first 60 % of the time every application's
replica is killed by SIGKILL, one after the other. At the end each request is looked up in the logs
of the router and of the replicas, whose counters have to agree; all gauges have to be zero; and
memory is told by kind of process, of those that lived to the end, from their fourth minute on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

import httpx2

import soak_tables as tables
from harness import Server, machine, versions, write_results
from headpond.ray_env import free_port
from headpond.telemetry.scrape import Scrape
from soak_account import Kill, account, ends
from soak_batches import Batches
from soak_kinds import APPLICATIONS, kinds, spoken
from soak_logs import faults, read_lines
from soak_traffic import Sent, Traffic
from soak_watch import MIB, REPLICA, Holding, Memory, Trend, holding, titled

WARM_S = 20.0
YOUNG_S = 240.0
KILLING = 0.6
SETTLE_S = 90.0
KEPT_OPEN_S = 8.0
"""After so long idle connections are closed by clients, HAProxy and replicas."""

SPARE_FILES = 8
FLAT_BYTES, FLAT_SHARE = 4 * MIB, 0.03
GAUGES = (
    "headpond_open",
    "headpond_running",
    "headpond_waiting",
    "headpond_state_held_bytes",
    "headpond_http_open",
    "headpond_sessions",
)
JOBS = "jobs"


@dataclass(kw_only=True)
class Soak:
    """A platform in a folder of its own, and what was done to it.

    Attributes:
        server: The platform.
        folder: Its data, and its temporary files with Ray's logs.
        sent: All requests.
        kills: Replicas that were killed.
    """

    server: Server
    folder: Path
    sent: list[Sent] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        """Where callers find it."""
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def ray_address(self) -> str:
        """Where its Ray's control store listens."""
        flag = "--gcs-address="
        raylet = next(process for process, kind in titled(self.server.tree()) if kind == "raylet")
        return next(each.removeprefix(flag) for each in raylet.cmdline() if each.startswith(flag))

    def scrape(self) -> Scrape:
        """Return the router's metrics, with those of every replica."""
        text = httpx2.get(f"{self.base_url}/metrics", timeout=30).raise_for_status().text
        return Scrape.parse(text, time.monotonic())

    def replica(self, application: str) -> int | None:
        """Return the process of an application's newest replica."""
        found = [
            process
            for process, kind in titled(self.server.tree())
            if kind == application and process.cmdline()[0].startswith(REPLICA)
        ]
        return max(found, key=lambda each: each.create_time()).pid if found else None

    def held(self) -> Holding:
        """Return what its processes hold."""
        return holding(self.server, self.folder / "tmp", self.ray_address)

    def traffic(self) -> Traffic:
        """Return users who add to what was sent."""
        return Traffic(base_url=self.base_url, kinds=kinds(), spoken=spoken(), sent=self.sent)

    async def kill(self, application: str, model: str) -> None:
        """Kill a replica, and return when its successor serves."""
        pid = self.replica(application)
        if pid is None:
            raise RuntimeError(f"{application} has no replica")
        seen = ends(await asyncio.to_thread(self.scrape), model) if model else {}
        struck_s = time.monotonic()
        os.kill(pid, 9)
        while self.replica(application) in (None, pid) or not await self._ready():
            await asyncio.sleep(0.5)
        whole_s = time.monotonic() - struck_s
        print(f"{application} killed; whole after {whole_s:.1f} s", flush=True)
        self.kills.append(
            Kill(
                application=application,
                model=model,
                pid=pid,
                at_s=struck_s,
                whole_s=whole_s,
                seen=seen,
            )
        )

    async def _ready(self) -> bool:
        async with httpx2.AsyncClient(base_url=self.base_url) as client:
            try:
                return (await client.get("/readyz", timeout=5)).status_code == httpx2.codes.OK
            except httpx2.HTTPError:
                return False

    def settle(self) -> dict[str, float]:
        """Wait until nothing is under way; return what then still is, by gauge."""
        until_s = time.monotonic() + SETTLE_S
        while any((left := self._gauges()).values()) and time.monotonic() < until_s:
            time.sleep(1)
        time.sleep(KEPT_OPEN_S)
        return left

    def _gauges(self) -> dict[str, float]:
        scrape = self.scrape()
        jobs = scrape.values("headpond_jobs", "status")
        under_way = [each for each in jobs if each in ("validating", "in_progress", "finalizing")]
        return {
            **{name: scrape.total(name) for name in GAUGES},
            "headpond_jobs": sum(scrape.total("headpond_jobs", status=each) for each in under_way),
        }


async def use(traffic: Traffic, batches: Batches, seconds: float, soak: Soak | None) -> None:
    """Let users ask for so long, and kill replicas meanwhile."""
    using = asyncio.gather(traffic.run(), batches.run())
    began_s = time.monotonic()
    if soak is not None:
        victims = [(application, model) for model, application in APPLICATIONS.items()]
        count = max(2, round(seconds / 120))
        for number, victim in enumerate(islice(cycle([*victims, (JOBS, "")]), count), 1):
            await _until(began_s + KILLING * seconds * number / count)
            await soak.kill(*victim)
    await _until(began_s + seconds)
    traffic.stop()
    await using


async def _until(at_s: float) -> None:
    await asyncio.sleep(max(at_s - time.monotonic(), 0.0))


def run(soak: Soak, seconds: float) -> dict[str, object]:
    """Soak a running platform; return the results."""
    warm = soak.traffic()
    simple = [kind for kind in warm.kinds if not kind.ending and not kind.file]
    asyncio.run(use(warm, Batches(traffic=warm, kinds=simple, pause_s=1), WARM_S, None))
    soak.settle()
    before = soak.held()
    traffic = soak.traffic()
    batches = Batches(traffic=traffic, kinds=simple, pause_s=max(5.0, seconds / 20))
    memory = Memory(server=soak.server)
    memory.start()
    asyncio.run(use(traffic, batches, seconds, soak))
    left = soak.settle()
    memory.stop()
    after = soak.held()
    scrape = soak.scrape()
    logs = soak.folder / "tmp/ray/session_latest/logs"
    alive = {model: soak.replica(name) or 0 for model, name in APPLICATIONS.items()}
    found = account(soak.sent, read_lines(logs), scrape, soak.kills, alive)
    trends = memory.trends([each.pid for each in soak.server.tree()], min(YOUNG_S, seconds / 4))
    found.wrong += [*batches.wrong, *_left(left, before, after), *_grown(trends), *faults(logs)]
    cases = [
        *tables.requests(found),
        *tables.memory(trends),
        *tables.what_is_left(left, before, after),
        *tables.killed(soak.sent, soak.kills),
    ]
    return {
        "cases": cases,
        "notes": tables.notes(soak.sent, batches, found, seconds),
        "wrong": found.wrong,
    }


def _left(left: Mapping[str, float], before: Holding, after: Holding) -> Iterator[str]:
    yield from (f"{name} is {value:g}" for name, value in left.items() if value)
    yield from (f"left behind: {path}" for path in set(after.temporary) - set(before.temporary))
    if after.objects > before.objects:
        yield f"{after.objects} objects in Ray's store, {before.objects} before"
    for said, old, new in (
        ("files", before.files, after.files),
        ("threads", before.threads, after.threads),
    ):
        for kind in new:
            more = new[kind] - old.get(kind, 0)
            if more > SPARE_FILES * after.processes[kind]:
                yield f"{kind} holds {more} more {said} than before"
    for kind in before.processes.keys() | after.processes.keys():
        if after.processes.get(kind, 0) > before.processes.get(kind, 0):
            yield f"{after.processes[kind]} of {kind}, {before.processes.get(kind, 0)} before"


def _grown(trends: Sequence[Trend]) -> Iterator[str]:
    for each in trends:
        if each.grown_bytes > max(FLAT_BYTES, FLAT_SHARE * each.first_bytes):
            yield f"{each.kind} has grown by {each.grown_bytes / MIB:.1f} MiB"


def main() -> int:
    """Run the soak, and write its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--subject", default="soak", help="try-... writes below .bench/tries")
    asked = parser.parse_args()
    before = machine()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    (folder / "tmp").mkdir()
    port = free_port()
    server = Server(
        name="soak",
        command=[sys.executable, "-m", "headpond.cli", "up", "--port", str(port)],
        port=port,
        ready_path="/readyz",
        ready_text="Ready at",
        env={"TMPDIR": str(folder / "tmp"), "XDG_DATA_HOME": str(folder / "data")},
    )
    try:
        server.start()
        found = run(Soak(server=server, folder=folder), asked.minutes * 60)
    finally:
        server.stop()
    document = {"machine": before, "versions": versions("ray", "torch"), "rounds": 1, **found}
    print(write_results(asked.subject, document))
    wrong = found["wrong"]
    if wrong:
        print(
            "\n".join(map(str, wrong if isinstance(wrong, list) else [])), f"see {folder}", sep="\n"
        )
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
