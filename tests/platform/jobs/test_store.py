"""Files and jobs as their owners see them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from headpond.errors import InvalidRequest, NotFound
from headpond.jobs.claim import Span
from headpond.jobs.database import Database
from headpond.jobs.errors import FileInUse, IdempotencyConflict, JobsTooNew, JobsUnavailable
from headpond.jobs.job import JobStatus, NewFile, NewJob, StoredFile
from headpond.jobs.leases import Leases
from headpond.jobs.results import Results
from headpond.jobs.store import Jobs, new_file_id, new_job_id
from headpond.jobs.tables import metadata
from headpond.testing.clock import FakeClock

BUNDLE = "echo@1.0.0+0123456789ab"


def new_file(
    tenant: str = "mill", purpose: str = "batch", expires_after_s: float | None = None
) -> NewFile:
    identifier = new_file_id()
    return NewFile(
        id=identifier,
        tenant=tenant,
        purpose=purpose,
        filename="in.jsonl",
        bytes=5,
        sha256="0" * 64,
        key=f"files/{identifier}",
        expires_after_s=expires_after_s,
    )


def new_job(file: StoredFile) -> NewJob:
    return NewJob(
        id=new_job_id(),
        tenant=file.tenant,
        endpoint="/v1/echo",
        model="echo",
        bundle=BUNDLE,
        input_file_id=file.id,
        window="24h",
        window_s=86_400.0,
        metadata={"for": "tests"},
    )


async def test_a_file_is_its_tenants_only_and_until_it_expires(
    jobs: Jobs, clock: FakeClock
) -> None:
    file = await jobs.add_file(new_file(expires_after_s=60.0))
    assert await jobs.file(file.id, "mill") == file
    with pytest.raises(NotFound):
        await jobs.file(file.id, "brook")
    clock.advance(60.0)
    with pytest.raises(NotFound):
        await jobs.file(file.id, "mill")
    assert (await jobs.files("mill")).rows == ()


async def test_lists_go_on_where_the_last_page_ended(jobs: Jobs, clock: FakeClock) -> None:
    added = []
    for number in range(5):
        added.append(await jobs.add_file(new_file()))
        clock.advance(number % 2)  # some share one moment
    await jobs.add_file(new_file("brook"))
    await jobs.add_file(new_file(purpose="user_data"))
    seen: list[StoredFile] = []
    more = True
    while more:
        page = await jobs.files(
            "mill", purpose="batch", after=seen[-1].id if seen else None, limit=2
        )
        seen += page.rows
        more = page.has_more
    assert {file.id for file in seen} == {file.id for file in added}
    assert len(seen) == 5
    assert [file.created_s for file in seen] == sorted((f.created_s for f in added), reverse=True)
    with pytest.raises(InvalidRequest) as caught:
        await jobs.files("brook", after=added[0].id)
    assert caught.value.param == "after"


async def test_a_job_is_made_once_by_its_idempotency_key(jobs: Jobs) -> None:
    file = await jobs.add_file(new_file())
    asked = [replace(new_job(file), idempotency_key="k", body_sha256="a") for _ in range(8)]
    made = await asyncio.gather(*map(jobs.create, asked))
    assert len({job.id for job in made}) == 1
    assert len((await jobs.jobs("mill")).rows) == 1
    with pytest.raises(IdempotencyConflict):
        await jobs.create(replace(new_job(file), idempotency_key="k", body_sha256="b"))
    other = await jobs.create(new_job(file))
    assert other.id != made[0].id


async def test_a_new_job_tells_what_was_asked(jobs: Jobs, clock: FakeClock) -> None:
    file = await jobs.add_file(new_file())
    job = await jobs.create(new_job(file))
    assert job.status is JobStatus.VALIDATING
    assert job.bundle == BUNDLE
    assert job.metadata == {"for": "tests"}
    assert (job.created_s, job.deadline_s) == (clock(), clock() + 86_400.0)
    assert job.progress.total == 0
    assert (await jobs.totals()).jobs == {JobStatus.VALIDATING: 1}
    with pytest.raises(NotFound):
        await jobs.job(job.id, "brook")


async def test_a_job_reads_only_a_file_of_its_tenant_that_is_for_batches(jobs: Jobs) -> None:
    for file in (new_file("brook"), new_file(purpose="user_data")):
        stored = await jobs.add_file(file)
        with pytest.raises(InvalidRequest) as caught:
            await jobs.create(replace(new_job(stored), tenant="mill"))
        assert caught.value.param == "input_file_id"


async def test_a_file_that_a_job_reads_is_not_deleted(jobs: Jobs) -> None:
    file = await jobs.add_file(new_file())
    await jobs.create(new_job(file))
    with pytest.raises(FileInUse):
        await jobs.delete_file(file.id, "mill")
    other = await jobs.add_file(new_file())
    assert await jobs.delete_file(other.id, "mill") == other
    with pytest.raises(NotFound):
        await jobs.delete_file(other.id, "mill")


async def test_a_shard_that_runs_counts_in_the_rate_and_the_estimate(
    jobs: Jobs, database: Database, clock: FakeClock
) -> None:
    job = await jobs.create(new_job(await jobs.add_file(new_file())))
    leases = Leases(database, "worker", lease_s=60.0)
    reading = await leases.claim()
    assert reading is not None
    await Results(database).accept(
        reading, [Span(input_key="shard", first=0, stop=100, work=1000)], None
    )
    shard = await leases.claim()
    assert shard is not None
    assert (await jobs.job(job.id, "mill")).progress.estimated_end_s is None
    clock.advance(5.0)
    await leases.renew(shard, completed=20, failed=5)
    progress = (await jobs.job(job.id, "mill")).progress
    assert (progress.completed, progress.failed) == (20, 5)
    assert (progress.work_done, progress.work_per_s) == (250, 50.0)
    assert progress.estimated_end_s == clock() + 750 / 50.0


async def test_a_job_is_cancelled_once_and_only_by_its_tenant(jobs: Jobs) -> None:
    job = await jobs.create(new_job(await jobs.add_file(new_file())))
    with pytest.raises(NotFound):
        await jobs.cancel(job.id, "brook")
    first = await jobs.cancel(job.id, "mill")
    assert first.status is JobStatus.CANCELLING
    assert await jobs.cancel(job.id, "mill") == first


async def test_a_database_that_is_away_is_an_error_to_try_again(tmp_path: Path) -> None:
    with pytest.raises(JobsUnavailable) as caught:
        Database.open(f"sqlite:///{tmp_path}", patience_s=0.1)  # a folder is no database
    assert caught.value.retryable


async def test_the_migrations_make_the_tables_that_the_code_knows(database: Database) -> None:
    def differences(connection: Connection, _: float) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    assert await database.read(differences) == []


async def test_tables_of_a_newer_version_are_left_as_they_are(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    database = Database.open(url)
    await database.write(
        lambda it, _: it.execute(text("UPDATE alembic_version SET version_num = '9'"))
    )
    database.close()
    with pytest.raises(JobsTooNew, match="newer headpond"):
        Database.open(url)
