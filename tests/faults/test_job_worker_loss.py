"""A job worker is killed on a running platform, and a replica that it asks: the job goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from batches import Mill, as_jsonl, echo_line, require_exactly_once, until
from headpond.jobs.job import JobStatus
from headpond.jobs.settings import JobStore
from testbed import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NAMES = [f"r{number}" for number in range(600)]
CHUNKS = 40


@pytest.fixture
def mill(platform: Platform) -> Iterator[Mill]:
    store = JobStore(folder=str(platform.log.parent / "jobs"))
    database = store.open_database(patience_s=30.0)
    yield Mill(database=database, objects=store.open_objects())
    database.close()


@pytest.mark.long
async def test_a_job_survives_its_worker_and_the_replica_it_asks(
    platform: Platform, mill: Mill
) -> None:
    bundle = await asyncio.to_thread(platform.bundle_of, "echo")
    mill.backend.cards = [
        type(card)(name="echo", workload="echo", bundles=(bundle,), created_s=0, limits={})
        for card in mill.backend.cards
    ]
    lines = [
        echo_line(name, body={"model": "echo", "text": name * CHUNKS, "chunks": CHUNKS})
        for name in NAMES
    ]
    job = await mill.submit(as_jsonl(lines))

    async def some_done() -> bool:
        return (await mill.job(job)).progress.completed > 0

    async def replaced() -> bool:
        found = platform.replicas("jobs:JobWorker")
        return bool(found) and {each.pid for each in found}.isdisjoint(killed)

    await until(some_done)
    killed = set()
    for deployment in ("jobs:JobWorker", "echo:Model"):
        for process in platform.replicas(deployment):
            process.kill()
            killed.add(process.pid)
        await until(replaced)
    await until(lambda: mill.is_over(job))
    now = await mill.job(job)
    assert (now.status, now.bundle) == (JobStatus.COMPLETED, bundle)
    await require_exactly_once(mill, job, NAMES)
    output, _ = await mill.lines(job)
    assert {line["response"]["bundle"] for line in output} == {bundle}
    assert {line["response"]["body"]["text"] for line in output} == {n * CHUNKS for n in NAMES}
