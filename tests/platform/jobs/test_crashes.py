"""Workers that are killed anywhere lose no record and double none."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from batches import TENANT, Mill, as_jsonl, echo_line, mill_at, require_exactly_once, until
from flaky_files import FlakyFiles
from headpond.jobs import reading
from headpond.jobs.computing import Pace
from headpond.jobs.job import JobStatus
from headpond.jobs.objects import Objects
from headpond.jobs.worker import Worker, WorkerOptions
from headpond.testing.clock import FakeClock
from mortality import Death, Life, MortalBackend, MortalDatabase, MortalObjects

RECORDS = 200
SHARD = 8
LEASE_S = 30.0


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHARD_RECORDS", SHARD)


def mortal(mill: Mill, owner: str, life: Life) -> Worker:
    """Return a worker that dies after some operations."""
    backend = MortalBackend(cards=mill.backend.cards, compute=mill.backend.compute, life=life)
    return Worker(
        MortalDatabase(mill.database, life),
        MortalObjects(mill.objects, life),
        backend,
        mill.endpoints,
        owner=owner,
        options=WorkerOptions(lease_s=LEASE_S, pace=Pace(in_flight=4, shard_s=60.0)),
    )


async def work_until_death(worker: Worker) -> bool:
    """Do tasks until there are none, or it dies; say whether it died."""
    try:
        while await worker.step():
            pass
    except Death:
        return True
    return False


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("formed", [False, True], ids=["singly", "in groups"])
async def test_no_record_is_lost_or_doubled_whenever_workers_die(
    seed: int, formed: bool, tmp_path: Path, clock: FakeClock
) -> None:
    dice = random.Random(seed)  # noqa: S311 - the same in every run
    mill = mill_at(tmp_path, clock, formed=formed)
    names = [f"r{number}" for number in range(RECORDS)]
    lines = [echo_line(name, name + "x" * dice.randrange(50)) for name in names]
    job = await mill.submit(as_jsonl(lines))
    deaths = 0
    while not await mill.is_over(job):
        life = Life(dice.randrange(5, 120))
        deaths += await work_until_death(mortal(mill, f"worker-{deaths}", life))
        clock.advance(LEASE_S + 1.0)
    assert deaths > 1
    assert (await mill.job(job)).status is JobStatus.COMPLETED
    await require_exactly_once(mill, job, names)
    # One shard is in flight at each death, and nothing else runs again.
    assert mill.computed.total() - RECORDS <= deaths * SHARD
    mill.database.close()


@pytest.mark.parametrize("seed", range(4))
async def test_workers_that_die_beside_others_that_live(
    seed: int, tmp_path: Path, clock: FakeClock
) -> None:
    dice = random.Random(seed)  # noqa: S311
    mill = mill_at(tmp_path, clock)
    names = [f"r{number}" for number in range(RECORDS)]
    job = await mill.submit(as_jsonl([echo_line(name) for name in names]))
    await mill.worker().step()
    deaths = 0
    while not await mill.is_over(job):
        lives = [Life(dice.randrange(20, 200)) for _ in range(3)]
        workers = [mortal(mill, f"w{deaths}-{n}", life) for n, life in enumerate(lives)]
        deaths += sum(await asyncio.gather(*map(work_until_death, workers)))
        clock.advance(LEASE_S + 1.0)
    await require_exactly_once(mill, job, names)
    assert mill.computed.total() - RECORDS <= deaths * SHARD
    mill.database.close()


async def test_a_job_goes_on_when_the_store_errs_and_when_its_disk_is_full(
    tmp_path: Path, clock: FakeClock
) -> None:
    FlakyFiles.reset()
    mill = mill_at(tmp_path, clock)
    mill.objects = Objects(f"flaky://{tmp_path}/objects", patience_s=None)
    names = [f"r{number}" for number in range(SHARD * 5)]
    job = await mill.submit(as_jsonl([echo_line(name) for name in names]))
    FlakyFiles.reset(error_share=0.2, full=True)
    draining = asyncio.create_task(mill.drain())

    async def erred() -> bool:
        return FlakyFiles.errors >= 3

    await until(erred)
    assert not draining.done()
    FlakyFiles.full = False
    await draining
    assert FlakyFiles.errors > 3
    assert (await mill.job(job)).status is JobStatus.COMPLETED
    await require_exactly_once(mill, job, names)
    assert mill.computed.total() == SHARD * 5
    FlakyFiles.reset()
    mill.database.close()


async def test_a_store_that_fails_for_long_gives_its_tasks_back(
    tmp_path: Path, clock: FakeClock
) -> None:
    FlakyFiles.reset()
    mill = mill_at(tmp_path, clock)
    mill.objects = Objects(f"flaky://{tmp_path}/objects", patience_s=0.05)
    job = await mill.submit(as_jsonl([echo_line("a")]))
    FlakyFiles.reset(full=True)
    await mill.drain()
    assert "No space left" in str((await mill.job(job)).waits_for)
    FlakyFiles.reset()
    clock.advance(60.0)
    await mill.drain()
    now = await mill.job(job)
    assert (now.status, now.waits_for) == (JobStatus.COMPLETED, None)
    await require_exactly_once(mill, job, ["a"])
    mill.database.close()


async def test_a_job_keeps_its_bundle_when_the_alias_turns_to_another(
    tmp_path: Path, clock: FakeClock
) -> None:
    mill = mill_at(tmp_path, clock)
    (card,) = mill.backend.cards
    names = [f"r{number}" for number in range(RECORDS)]
    job = await mill.submit(as_jsonl([echo_line(name) for name in names]))
    worker = mill.worker()
    for _ in range(3):
        await worker.step()
    other = "echo@2.0.0+ba9876543210"
    mill.backend.cards = [
        type(card)(
            name="echo", workload="echo", bundles=(other, *card.bundles), created_s=0, limits={}
        )
    ]
    assert mill.backend.bundle_of("echo", "any") == other
    await mill.drain(worker)
    await require_exactly_once(mill, job, names)
    output, _ = await mill.lines(job)
    assert {line["response"]["bundle"] for line in output} == set(card.bundles)
    assert {call.model for call in mill.backend.calls} == set(card.bundles)
    assert (await mill.jobs.job(job.id, TENANT)).bundle == card.bundles[0]
    mill.database.close()
