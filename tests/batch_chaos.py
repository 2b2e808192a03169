"""Three batches through a storm: everything is killed again and again, and the stores fail.

Workers, the server that takes batches in, and all of them at once are killed with -9, the
database crashes, the disk is full for a while, and a fifth of the object store's calls fail.

`python tests/batch_chaos.py --records 20000 --faults 40 --postgres` runs it large; the tests
run it small.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import create_server
from typing import Any

import httpx2

from batch_processes import CARDS, KEY, RECORDS, SHARD, SHARDS, WORKLOADS, Processes, Site
from batches import TENANT, Mill, as_jsonl, require_exactly_once
from headpond.jobs.database import Database
from headpond.jobs.endpoints import batch_endpoints
from headpond.jobs.job import JobStatus
from headpond.jobs.objects import Objects
from pg_server import address_of, crash, postgres

ORDER = ("worker", "machine", "disk", "database", "server", "worker", "worker", "server")
"""What fails, one after the other, and again from the first."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a storm.

    Attributes:
        computed: How often each record was computed.
        faults: How often each thing failed.
        worker_kills: How many workers were killed, alone or with all others.
    """

    computed: Counter[str]
    faults: Counter[str]
    worker_kills: int

    @property
    def again(self) -> int:
        """How many records were computed once more, each time counted."""
        return self.computed.total() - len(self.computed)

    @property
    def most_again(self) -> int:
        """How many may be: the shards in flight whenever a worker dies, or its lease may end."""
        workers = self.worker_kills + 3 * self.faults["database"]
        return workers * SHARDS * SHARD


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
    folder: Path,
    database: str,
    *,
    records: int,
    faults: int,
    pause_s: float = 0.5,
    seed: int = 0,
    restart: Callable[[], Awaitable[None]] | None = None,
) -> Outcome:
    """Run three batches to their end, whatever happens meanwhile.

    Args:
        folder: For all that the processes share.
        database: Of the jobs.
        records: Of all batches together.
        faults: How often something fails.
        pause_s: The mean time between two faults.
        seed: Of the times, and of which worker.
        restart: Crashes the database, which comes back; without it that does not happen.

    Raises:
        AssertionError: A record was lost, doubled or computed too often.
    """
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    site = Site(folder=str(folder), database=database, port=port)
    processes = Processes(site)
    each = len(WORKLOADS)
    asked = {name: lines_of(name, (records + n) // each) for n, name in enumerate(WORKLOADS)}
    base_url, headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {KEY}"}
    async with httpx2.AsyncClient(base_url=base_url, headers=headers, timeout=60.0) as http:
        processes.start()
        try:
            raging = asyncio.create_task(_rage(processes, faults, pause_s, seed, restart))
            made = {
                name: await _submit(http, name, content) for name, (_, content) in asked.items()
            }
            failed = await raging
            over = {name: await _over(http, batch_id) for name, batch_id in made.items()}
            found = {name: await _results(http, batch) for name, batch in over.items()}
            listed = (await _answer(http, "GET", "/v1/batches")).json()["data"]
        finally:
            processes.stop()
    assert {batch["id"] for batch in listed} == set(made.values())  # no key made two
    for name, (names, _) in asked.items():
        assert (over[name]["status"], over[name]["errors"]) == ("completed", None)
        assert Counter(found[name]) == Counter(names)
    await _verify(site, {made[name]: names for name, (names, _) in asked.items()})
    computed = processes.computed()
    assert set(computed) == {name for names, _ in asked.values() for name in names}
    outcome = Outcome(computed=computed, faults=failed, worker_kills=processes.worker_kills)
    assert outcome.again <= outcome.most_again
    return outcome


async def _rage(
    processes: Processes,
    count: int,
    pause_s: float,
    seed: int,
    restart: Callable[[], Awaitable[None]] | None,
) -> Counter[str]:
    """Let one thing after the other fail, at random times but while workers work."""
    dice = random.Random(seed)  # noqa: S311 - the same in every run
    failed: Counter[str] = Counter()
    while failed.total() < count:
        await asyncio.sleep(dice.uniform(0.0, 2 * pause_s))
        if not processes.busy:
            continue
        kind = ORDER[failed.total() % len(ORDER)]
        if kind == "database" and restart is None:
            kind = "worker"
        failed[kind] += 1
        match kind:
            case "worker":
                processes.kill_worker(dice)
            case "server":
                processes.kill_server()
            case "machine":
                processes.kill_all()
            case "database" if restart is not None:
                await restart()
            case "disk":
                processes.site.full.touch()
                await asyncio.sleep(1.0)
                processes.site.full.unlink()
    return failed


async def _answer(
    http: httpx2.AsyncClient, method: str, path: str, **asked: Any
) -> httpx2.Response:
    """Ask until somebody answers: the server is dead at times, or its stores are away."""
    while True:
        try:
            answer = await http.request(method, path, **asked)
        except httpx2.TransportError:
            answer = None
        if answer is not None and answer.status_code < 500:
            return answer.raise_for_status()
        await asyncio.sleep(0.1)


async def _submit(http: httpx2.AsyncClient, workload: str, content: bytes) -> str:
    """Upload a file and ask for a batch, as often as it takes; the key makes it one."""
    upload = partial(_answer, http, "POST", "/v1/files", data={"purpose": "batch"})
    file = (await upload(files={"file": ("in.jsonl", content)})).json()
    body = {
        "input_file_id": file["id"],
        "endpoint": f"/v1/{workload}",
        "completion_window": "24h",
    }
    key = {"idempotency-key": workload}
    made = await _answer(http, "POST", "/v1/batches", json=body, headers=key)
    return str(made.json()["id"])


async def _over(http: httpx2.AsyncClient, batch_id: str) -> dict[str, Any]:
    """Return a batch that is over."""
    while True:
        batch: dict[str, Any] = (await _answer(http, "GET", f"/v1/batches/{batch_id}")).json()
        if JobStatus(batch["status"]).over:
            return batch
        await asyncio.sleep(0.1)


async def _results(http: httpx2.AsyncClient, batch: dict[str, Any]) -> list[str]:
    """Return the names of a batch's records, from its files."""
    names: list[str] = []
    for file_id in (batch["output_file_id"], batch["error_file_id"]):
        if file_id is not None:
            content = await _answer(http, "GET", f"/v1/files/{file_id}/content")
            names += [json.loads(line)["custom_id"] for line in content.iter_lines()]
    return names


async def _verify(site: Site, asked: dict[str, Sequence[str]]) -> None:
    """Check files, manifests and bundles in the stores themselves."""
    mill = Mill(
        database=Database.open(site.database, patience_s=30.0),
        objects=Objects(f"file://{site.folder}/objects"),
    )
    mill.backend.cards = CARDS
    mill.endpoints = batch_endpoints(RECORDS.values())
    for batch_id, names in asked.items():
        job = await mill.jobs.job(batch_id, TENANT)
        await require_exactly_once(mill, job, names)
        output, _ = await mill.lines(job)
        assert len(output) == len(names)
        assert {line["response"]["bundle"] for line in output} == {job.bundle}
    mill.database.close()


def main(arguments: Sequence[str]) -> None:
    """Run a storm, and say what became of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--pause-s", type=float, default=1.5, help="mean, between faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="SQLite without it")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = partial(
            storm,
            folder,
            records=options.records,
            faults=options.faults,
            pause_s=options.pause_s,
            seed=options.seed,
        )
        began_s = time.monotonic()
        if options.postgres:
            with postgres(folder) as server:
                restart = partial(crash, server)
                outcome = asyncio.run(run(database=address_of(server), restart=restart))
        else:
            outcome = asyncio.run(run(database=f"sqlite:///{folder}/jobs.db"))
        took_s = time.monotonic() - began_s
    failed = ", ".join(f"{kind} {count}" for kind, count in outcome.faults.items())
    sys.stdout.write(
        f"{len(outcome.computed)} records, each once over the files, in {took_s:.0f} s; "
        f"failed: {failed}; {outcome.worker_kills} workers were killed; "
        f"{outcome.again} records computed again, of at most {outcome.most_again}\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
