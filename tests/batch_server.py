"""A server of files and batches over the echo workload, whose worker lives in its process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from socket import create_server

import uvicorn

from headpond.backend import LocalBackend
from headpond.bundle.store import open_bundle
from headpond.http.app import ASGIApp, build_app
from headpond.http.jobs import JobsDoor
from headpond.jobs.access import JobsAccess
from headpond.jobs.endpoints import batch_endpoints
from headpond.jobs.settings import JobStore
from headpond.jobs.worker import Worker, WorkerOptions
from headpond.scheduling.loop import loop_for
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.testing.echo import EchoEngine, record, write_echo_bundle

ENDPOINT = "/v1/echo"
MODEL = "polly"


def line(custom_id: str, text: str = "hello", *, url: str = ENDPOINT, model: str = MODEL) -> str:
    """Return one line of an input file."""
    body = {"model": model, "text": text}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


def lines(*each: str) -> bytes:
    """Return an input file."""
    return "".join(f"{text}\n" for text in each).encode()


@asynccontextmanager
async def echo_backend(folder: Path) -> AsyncIterator[LocalBackend]:
    """Run the echo engine in this process."""
    bundle = open_bundle(write_echo_bundle(folder / "parrot"), cache=folder / "cache")
    manifest = bundle.manifest
    metrics = Metrics(record, bundle=manifest.ref, model=MODEL)
    loop = loop_for(
        record,
        EchoEngine(),
        record.bind(manifest.model, manifest.execution.dtype),
        state_bytes=2**20,
        max_slots=32,
        bundle=manifest.ref,
        observer=metrics.observe,
    )
    loop.start()
    yield LocalBackend(
        record=record, manifest=manifest, alias=MODEL, loop=loop, metrics_source=metrics
    )
    await loop.stop(0.0)


@asynccontextmanager
async def batch_app(
    folder: Path, settings: Settings, jobs: JobStore, *, workers: int = 1
) -> AsyncIterator[ASGIApp]:
    """Build an app with files and batches, and let so many workers run."""
    access = JobsAccess(jobs, patience_s=0.3)
    async with echo_backend(folder) as backend, AsyncExitStack() as stack:
        for number in range(workers):
            await stack.enter_async_context(working(jobs, backend, f"worker-{number}"))
        yield build_app([record], backend, settings, jobs=JobsDoor(access))
    await access.close()


@asynccontextmanager
async def working(store: JobStore, backend: LocalBackend, owner: str) -> AsyncIterator[None]:
    """Let a worker run in this process."""
    database = store.open_database()
    worker = Worker(
        database,
        store.open_objects(),
        backend,
        batch_endpoints([record]),
        owner=owner,
        options=WorkerOptions(poll_s=0.02),
        roots=store.open_roots(),
    )
    run = asyncio.create_task(worker.run())
    yield
    worker.stop()
    await run
    database.close()


@contextmanager
def batch_server(
    folder: Path,
    *,
    settings: Settings | None = None,
    jobs: JobStore | None = None,
    workers: int = 1,
) -> Iterator[str]:
    """Serve such an app on a free port by a thread of its own, and yield its base URL."""
    with create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as threads:
        begun, stop = threading.Event(), threading.Event()

        async def run() -> None:
            given = jobs or JobStore(folder=str(folder / "data"))
            async with batch_app(folder, settings or Settings(), given, workers=workers) as app:
                server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
                serving = asyncio.create_task(server.serve(sockets=[listening]))
                begun.set()
                await asyncio.to_thread(stop.wait)
                server.should_exit = True
                await serving

        served = threads.submit(asyncio.run, run())
        served.add_done_callback(lambda _: begun.set())
        begun.wait()
        if served.done():
            served.result()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stop.set()
            served.result()
