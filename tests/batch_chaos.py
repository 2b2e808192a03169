"""Three jobs while workers are killed: a share of the store's calls fails, the disk fills up.

`python tests/batch_chaos.py --records 20000 --kills 40` runs it large; CI runs it small.
As `python tests/batch_chaos.py worker ...` it is one of the processes that are killed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from batches import Mill, as_jsonl, require_exactly_once
from flaky_files import FlakyFiles
from headpond.call import Answer, Call, ModelCard
from headpond.dialect import Route
from headpond.jobs import reading
from headpond.jobs.computing import Pace
from headpond.jobs.database import Database
from headpond.jobs.endpoints import batch_endpoints
from headpond.jobs.job import Job, JobStatus
from headpond.jobs.objects import Objects
from headpond.jobs.worker import Worker, WorkerOptions
from headpond.record import Formed, WorkloadRecord
from headpond.testing.answering import AnsweringBackend
from headpond.testing.echo import record as echo
from headpond.testing.echo_dialect import EchoExchange, EchoItem, EchoRequest, EchoResponse

WORKLOADS = ("echo", "measuring", "ranking")
SHARD = 64
LEASE_S = 2.0
CALL_S = 0.02
FULL = "disk-is-full"


def toy(name: str) -> WorkloadRecord:
    """Return the echo workload under another name; all but the first form batches."""
    route = Route.json(
        f"/v1/{name}",
        "Say a text back",
        request=EchoRequest,
        exchange=EchoExchange,
        response=EchoResponse,
        example={"text": "hello"},
    )
    shape = replace(echo.request, max_items=64)
    batching = echo.batching if name == "echo" else Formed(axis="text_bytes", budget=1000)
    return replace(echo, name=name, routes=(route,), request=shape, batching=batching)


RECORDS = {name: toy(name) for name in WORKLOADS}
CARDS = [
    ModelCard(
        name=name, workload=name, bundles=(f"{name}@1.0.0+0123456789ab",), created_s=0, limits={}
    )
    for name in WORKLOADS
]


@dataclass(kw_only=True)
class CountingBackend(AnsweringBackend):
    """Takes a while for each call, and writes down what it computes where no kill undoes it."""

    async def submit(self, call: Call) -> Answer:
        await asyncio.sleep(CALL_S)
        return await super().submit(call)


def work(folder: Path, database: str, objects: str, owner: str) -> None:
    """Be a worker, until killed."""
    counted = os.open(folder / f"computed-{owner}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def compute(item: object) -> object:
        if not isinstance(item, EchoItem):
            raise TypeError(item)
        os.write(counted, f"{item.text}\n".encode())
        return item.text

    reading.SHARD_RECORDS = SHARD
    FlakyFiles.reset(error_share=0.2)
    FlakyFiles.full_while = folder / FULL
    worker = Worker(
        Database.open(database, patience_s=30.0),
        Objects(objects, patience_s=60.0),
        CountingBackend(cards=CARDS, compute=compute),
        batch_endpoints(RECORDS.values()),
        owner=owner,
        options=WorkerOptions(lease_s=LEASE_S, poll_s=0.1, pace=Pace(in_flight=8, shard_s=1.0)),
    )
    asyncio.run(worker.run())


@dataclass
class Workers:
    """Worker processes that come and go."""

    folder: Path
    database: str
    objects: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: int = 0

    def start(self) -> None:
        """Start one more."""
        owner = f"w{time.monotonic_ns()}"
        given = [str(self.folder), self.database, self.objects, owner]
        with (self.folder / "workers.log").open("ab") as log:
            self.processes[owner] = subprocess.Popen(
                [sys.executable, __file__, "worker", *given], stdout=log, stderr=log
            )

    def kill(self, dice: random.Random) -> None:
        """Kill one that works and start another, as when the machine has no memory left."""
        busy = [owner for owner in self.processes if self._has_computed(owner)]
        if not busy:
            return
        process = self.processes.pop(dice.choice(busy))
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.kills += 1
        self.start()

    def computed(self) -> Counter[str]:
        """Return what all of them have computed, by how often."""
        files = self.folder.glob("computed-*")
        return Counter(name for file in files for name in file.read_text().split())

    def _has_computed(self, owner: str) -> bool:
        counted = self.folder / f"computed-{owner}"
        return counted.exists() and counted.stat().st_size > 0

    def stop(self) -> None:
        """Kill all."""
        for process in self.processes.values():
            process.kill()
            process.wait()


def lines_of(workload: str, count: int) -> tuple[list[str], bytes]:
    """Return the names of some records, and the input that has them."""
    names = [f"{workload}-{number}" for number in range(count)]
    lines = [
        {
            "custom_id": name,
            "method": "POST",
            "url": f"/v1/{workload}",
            "body": {"model": workload, "text": name},
        }
        for name in names
    ]
    return names, as_jsonl(lines)


async def storm(
    folder: Path, database: str, *, records: int, kills: int, seed: int = 0
) -> tuple[Counter[str], int]:
    """Run three jobs to their end, whatever happens to the workers.

    Returns:
        What was computed, by how often, and how many workers were killed.

    Raises:
        AssertionError: A record was lost or doubled.
    """
    dice = random.Random(seed)  # noqa: S311 - the same in every run
    mill = Mill(
        database=Database.open(database, patience_s=30.0),
        objects=Objects(f"file://{folder}/objects"),
    )
    mill.backend.cards = CARDS
    mill.endpoints = batch_endpoints(RECORDS.values())
    jobs: dict[str, tuple[Job, Sequence[str]]] = {}
    for workload in WORKLOADS:
        names, content = lines_of(workload, records // len(WORKLOADS))
        jobs[workload] = (await mill.submit(content, endpoint=f"/v1/{workload}"), names)
    workers = Workers(folder, database, f"flaky://{folder}/objects")
    try:
        for _ in range(3):
            workers.start()
        await _rage(mill, workers, [job for job, _ in jobs.values()], dice, kills)
    finally:
        workers.stop()
    for job, asked in jobs.values():
        assert (await mill.job(job)).status is JobStatus.COMPLETED
        await require_exactly_once(mill, job, asked)
        output, _ = await mill.lines(job)
        assert len(output) == len(asked)
        assert {line["response"]["bundle"] for line in output} == {job.bundle}
    mill.database.close()
    computed = workers.computed()
    assert set(computed) == {name for _, names in jobs.values() for name in names}
    # A worker runs two shards at once: no more than these run again for each kill.
    assert computed.total() - len(computed) <= workers.kills * 2 * SHARD
    return computed, workers.kills


async def _rage(
    mill: Mill, workers: Workers, jobs: Sequence[Job], dice: random.Random, kills: int
) -> None:
    """Kill workers, and fill the disk for a while, until all jobs are over."""
    full, was_full = workers.folder / FULL, False
    while not all([await mill.is_over(job) for job in jobs]):
        await asyncio.sleep(dice.uniform(0.3, 1.0))
        if workers.kills < kills:
            workers.kill(dice)
        if workers.kills == kills // 2 and not was_full:
            was_full = True
            full.touch()
            await asyncio.sleep(1.0)
            full.unlink()


def main(arguments: Sequence[str]) -> None:
    """Be a worker, or run the storm."""
    if arguments[:1] == ["worker"]:
        folder, database, objects, owner = arguments[1:]
        work(Path(folder), database, objects, owner)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", help="PostgreSQL; SQLite in a fresh folder when absent.")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        database = asked.database or f"sqlite:///{folder}/jobs.db"
        began_s = time.monotonic()
        computed, kills = asyncio.run(
            storm(Path(folder), database, records=asked.records, kills=asked.kills, seed=asked.seed)
        )
        again = computed.total() - len(computed)
        took_s = time.monotonic() - began_s
        sys.stdout.write(
            f"{len(computed)} records, each once over the files, in {took_s:.0f} s; "
            f"{kills} kills; {again} computed again\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
