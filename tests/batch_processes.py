"""The processes of a batch storm: workers, and the server that takes batches in.

`python tests/batch_processes.py SITE` forks them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import uvicorn

from batches import TENANT
from flaky_files import FlakyFiles
from headpond.api_key import ApiKey
from headpond.call import Answer, Call, ModelCard
from headpond.dialect import Route
from headpond.http.app import build_app
from headpond.http.jobs import JobsDoor
from headpond.jobs import reading
from headpond.jobs.access import JobsAccess
from headpond.jobs.computing import Pace
from headpond.jobs.endpoints import batch_endpoints
from headpond.jobs.settings import JobStore
from headpond.jobs.worker import Worker, WorkerOptions
from headpond.record import Formed, WorkloadRecord
from headpond.settings import Settings
from headpond.testing.answering import AnsweringBackend
from headpond.testing.echo import record as echo
from headpond.testing.echo_dialect import EchoExchange, EchoItem, EchoRequest, EchoResponse

WORKLOADS = ("echo", "measuring", "ranking")
SHARD = 64
SHARDS = 2
"""So many of them a worker runs at once."""
LEASE_S = 2.0
KEY = "sk-mill"
RECORD_S = 0.02
"""So long that no batch is over before the storm is."""


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


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a storm takes place.

    Attributes:
        folder: What all processes share.
        database: Of the jobs.
        port: The server's.
    """

    folder: str
    database: str
    port: int

    @property
    def full(self) -> Path:
        """The disk is full while there is such a file."""
        return Path(self.folder, "disk-is-full")

    def store(self) -> JobStore:
        """Return the stores as a process has them: the objects' errs with a fifth of its calls."""
        FlakyFiles.reset(error_share=0.2)
        FlakyFiles.full_while = self.full
        return JobStore(database=self.database, objects=f"flaky://{self.folder}/objects")


@dataclass(kw_only=True)
class CountingBackend(AnsweringBackend):
    """Takes a while for each record, and writes down what it computes where no kill undoes it."""

    async def submit(self, call: Call) -> Answer:
        await asyncio.sleep(RECORD_S * len(call.items))
        return await super().submit(call)


def work(name: str, site: Site) -> None:
    """Be a worker, until killed."""
    counted = os.open(Path(site.folder, f"computed-{name}"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def compute(item: object) -> object:
        if not isinstance(item, EchoItem):
            raise TypeError(item)
        os.write(counted, f"{item.text}\n".encode())
        return item.text

    reading.SHARD_RECORDS = SHARD
    store = site.store()
    pace = Pace(in_flight=8, shard_s=1.0)
    worker = Worker(
        store.open_database(patience_s=30.0),
        store.open_objects(patience_s=60.0),
        CountingBackend(cards=CARDS, compute=compute),
        batch_endpoints(RECORDS.values()),
        owner=name,
        options=WorkerOptions(shards=SHARDS, lease_s=LEASE_S, poll_s=0.1, pace=pace),
    )
    asyncio.run(worker.run())


def serve(site: Site) -> None:
    """Be the server that takes batches in and gives their results out, until killed."""
    access = JobsAccess(site.store(), patience_s=30.0)
    backend = AnsweringBackend(cards=CARDS, compute=lambda item: item)
    key = ApiKey.model_validate({"key": KEY, "tenant": TENANT})
    settings = Settings(keys=(key,))
    app = build_app(list(RECORDS.values()), backend, settings, jobs=JobsDoor(access))
    uvicorn.run(app, host="127.0.0.1", port=site.port, log_level="warning", lifespan="off")


@dataclass
class Processes:
    """Three workers and a server, which are killed and come back.

    They are forked from one process that has everything imported, which takes seconds.
    """

    site: Site
    workers: dict[str, int] = field(default_factory=dict)
    server: int | None = None
    worker_kills: int = 0

    def __post_init__(self) -> None:
        command = [sys.executable, __file__, json.dumps(asdict(self.site))]
        with Path(self.site.folder, "processes.log").open("wb") as log:
            self._forking = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def start(self) -> None:
        """Start those that are missing."""
        while len(self.workers) < 3:
            name = f"w{time.monotonic_ns()}"
            self.workers[name] = self._forked(f"worker {name}")
        if self.server is None:
            self.server = self._forked("server it")

    @property
    def busy(self) -> list[str]:
        """Which workers have computed something."""
        return [name for name in self.workers if self._has_computed(name)]

    def kill_worker(self, dice: random.Random) -> None:
        """Kill one that works, as when the machine has no memory left, and start another."""
        _kill(self.workers.pop(dice.choice(self.busy)))
        self.worker_kills += 1
        self.start()

    def kill_server(self) -> None:
        """Kill the server, and start it again."""
        if self.server is not None:
            _kill(self.server)
        self.server = None
        self.start()

    def kill_all(self) -> None:
        """Kill everything, as when the machine goes down, and start it again."""
        self.worker_kills += len(self.workers)
        self._kill_all()
        self.start()

    def stop(self) -> None:
        """Kill everything for good."""
        self._kill_all()
        self._forking.communicate()

    def computed(self) -> Counter[str]:
        """Return what all workers have computed, by how often."""
        files = Path(self.site.folder).glob("computed-*")
        return Counter(name for file in files for name in file.read_text().split())

    def _kill_all(self) -> None:
        for process_id in [*self.workers.values(), *([self.server] if self.server else [])]:
            _kill(process_id)
        self.workers.clear()
        self.server = None

    def _has_computed(self, name: str) -> bool:
        counted = Path(self.site.folder, f"computed-{name}")
        return counted.exists() and counted.stat().st_size > 0

    def _forked(self, asked: str) -> int:
        assert self._forking.stdin is not None
        assert self._forking.stdout is not None
        self._forking.stdin.write(f"{asked}\n")
        self._forking.stdin.flush()
        return int(self._forking.stdout.readline())


def _kill(process_id: int) -> None:
    """Kill a process, and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)
        while True:
            os.kill(process_id, 0)
            time.sleep(0.005)


def fork(site: Site) -> None:
    """Make the processes that standard input asks for, and tell their numbers."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
    for asked in sys.stdin:
        role, name = asked.split()
        process_id = os.fork()
        if process_id == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what it logs is no number
            work(name, site) if role == "worker" else serve(site)
            os._exit(0)
        sys.stdout.write(f"{process_id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    fork(Site(**json.loads(sys.argv[1])))
