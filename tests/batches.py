"""A toy mill for batches: a store, a backend that counts, and workers that run in this process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headpond.call import ModelCard
from headpond.jobs.computing import Pace
from headpond.jobs.database import Database
from headpond.jobs.endpoints import batch_endpoints
from headpond.jobs.gathering import first_records
from headpond.jobs.job import Job, NewFile, NewJob, Source, Target
from headpond.jobs.objects import Objects
from headpond.jobs.pinning import first_lines, pin
from headpond.jobs.prefixes import open_source
from headpond.jobs.roots import Roots
from headpond.jobs.store import Jobs, new_file_id, new_job_id
from headpond.jobs.worker import Worker, WorkerOptions
from headpond.record import Formed, WorkloadRecord
from headpond.testing.answering import AnsweringBackend
from headpond.testing.echo import record as echo
from headpond.testing.echo_dialect import EchoItem

TENANT = "mill"
ENDPOINT = "/v1/echo"
BUNDLE = "echo@1.0.0+0123456789ab"
CARD = ModelCard(name="echo", workload="echo", bundles=(BUNDLE,), created_s=0, limits={})

Line = Mapping[str, object]


def echo_line(name: str, text: str | None = None, **changes: object) -> Line:
    """Return an input line that asks for a text."""
    body = {"model": "echo", "text": name if text is None else text}
    return {"custom_id": name, "method": "POST", "url": ENDPOINT, "body": body, **changes}


def as_jsonl(lines: Sequence[Line | str]) -> bytes:
    """Return lines as a file has them; texts as they are."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return "".join(f"{text}\n" for text in texts).encode()


def formed_echo() -> WorkloadRecord:
    """Return the echo workload as one whose calls are computed in formed batches."""
    return replace(
        echo,
        batching=Formed(axis="text_bytes", budget=1000),
        request=replace(echo.request, max_items=64),
    )


@dataclass(kw_only=True)
class Mill:
    """Everything that a batch needs, in this process.

    Attributes:
        database: Of the jobs.
        objects: Where files lie.
        backend: Answers.
        computed: How often each text was computed.
        rule: Makes the answer of a text, or raises the error it gets.
        formed: Whether records are asked for in groups.
        roots: What jobs may read and write besides.
    """

    database: Database
    objects: Objects
    computed: Counter[str] = field(default_factory=Counter)
    rule: Callable[[str], str] = lambda text: text
    formed: bool = False
    roots: Roots = field(default_factory=Roots)
    backend: AnsweringBackend = field(init=False)

    def __post_init__(self) -> None:
        self.backend = AnsweringBackend(cards=[CARD], compute=self._compute)
        self.jobs = Jobs(self.database)
        self.endpoints = batch_endpoints([formed_echo() if self.formed else echo])

    def _compute(self, item: object) -> object:
        assert isinstance(item, EchoItem)
        self.computed[item.text] += 1
        return self.rule(item.text)

    async def submit(self, content: bytes, *, endpoint: str = ENDPOINT, **metadata: str) -> Job:
        """Upload a file and make a job of it, as the API does."""
        file_id = new_file_id()
        key = f"files/{file_id}"
        stored = await self.objects.put(key, content)
        await self.jobs.add_file(
            NewFile(
                id=file_id,
                tenant=TENANT,
                purpose="batch",
                filename="in.jsonl",
                bytes=stored.bytes,
                sha256=stored.sha256,
                key=key,
            )
        )
        asked = replace(_asked(), endpoint=endpoint, input_file_id=file_id, metadata=metadata)
        return await self._made(asked, first_lines(self.objects, key))

    async def submit_prefix(self, source: Source, target: Target) -> Job:
        """Make a job over a prefix, as the API does."""
        folder, entries = await open_source(self.roots, source, TENANT)
        asked = replace(_asked(), source=source, target=target)
        return await self._made(asked, first_records(folder, entries, source))

    async def _made(self, asked: NewJob, first: AsyncGenerator[bytes]) -> Job:
        """Make a job of the model that the first lines of its input name."""
        async with aclosing(first) as lines:
            pinned = await pin(lines, self.endpoints[asked.endpoint], self.backend, asked.id)
        return await self.jobs.create(replace(asked, model=pinned.model, bundle=pinned.bundle))

    def worker(
        self,
        owner: str = "one",
        *,
        shards: int = 2,
        lease_s: float = 30.0,
        pace: Pace | None = None,
    ) -> Worker:
        """Return a worker that has taken nothing yet."""
        pace = pace or Pace()
        return Worker(
            self.database,
            self.objects,
            self.backend,
            self.endpoints,
            owner=owner,
            options=WorkerOptions(shards=shards, lease_s=lease_s, poll_s=0.01, pace=pace),
            roots=self.roots,
        )

    async def drain(self, worker: Worker | None = None) -> None:
        """Do tasks until there are none."""
        worker = worker or self.worker()
        while await worker.step():
            pass

    async def job(self, job: Job) -> Job:
        """Return a job as it is now."""
        return await self.jobs.job(job.id, TENANT)

    async def is_over(self, job: Job) -> bool:
        """Say whether a job stays as it is."""
        return (await self.job(job)).status.over

    async def lines(self, job: Job) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the output and error lines of a job."""
        now = await self.job(job)
        return (
            await self._file_lines(now.output_file_id),
            await self._file_lines(now.error_file_id),
        )

    async def manifest(self, job: Job) -> dict[str, Any]:
        """Return the manifest of a job."""
        key = (await self.job(job)).manifest_key
        assert key is not None
        manifest: dict[str, Any] = json.loads(await self.objects.get(key))
        return manifest

    async def _file_lines(self, file_id: str | None) -> list[dict[str, Any]]:
        if file_id is None:
            return []
        file = await self.jobs.file(file_id, TENANT)
        content = await self.objects.get(file.key)
        assert hashlib.sha256(content).hexdigest() == file.sha256
        return [json.loads(line) for line in content.splitlines()]


def _asked() -> NewJob:
    """Return a job as everybody asks for it."""
    return NewJob(
        id=new_job_id(),
        tenant=TENANT,
        endpoint=ENDPOINT,
        model=None,
        bundle=None,
        window="24h",
        window_s=86_400.0,
    )


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that other tasks, threads or processes bring about."""
    while not await condition():  # noqa: ASYNC110 - they tell nobody
        await asyncio.sleep(0.01)


async def require_exactly_once(mill: Mill, job: Job, names: Sequence[str]) -> None:
    """Check that each name is in one line of one file, and that the manifest says so."""
    output, error = await mill.lines(job)
    assert Counter(line["custom_id"] for line in [*output, *error]) == Counter(names)
    manifest = await mill.manifest(job)
    now = await mill.job(job)
    assert manifest["records"] == {
        "total": len(names),
        "completed": len(output),
        "failed": len(error),
    }
    for lines, part in ((output, "output"), (error, "error")):
        file_id = getattr(now, f"{part}_file_id")
        assert (manifest[part] is None) == (not lines)
        if manifest[part] is not None:
            file = await mill.jobs.file(file_id, TENANT)
            assert manifest[part] == {
                "file": file.id,
                "bytes": file.bytes,
                "sha256": file.sha256,
            }
    shards = manifest["shards"]
    assert sum(s["result"]["completed"] + s["result"]["failed"] for s in shards) == len(names)
    assert now.bundle == manifest["bundle"]


def mill_at(folder: Path, clock: Callable[[], float] = time.time, *, formed: bool = False) -> Mill:
    """Return a mill with SQLite and files in a folder."""
    url = f"sqlite:///{folder}/jobs.db"
    database = Database.open(url, clock=clock)
    return Mill(database=database, objects=Objects(f"file://{folder}/objects"), formed=formed)
