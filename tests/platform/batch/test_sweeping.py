"""Files whose time is over go away, but for those that a job still needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headpond.jobs.database import Database
from headpond.jobs.job import NewFile, NewJob, StoredFile
from headpond.jobs.objects import Objects
from headpond.jobs.store import Jobs, new_file_id, new_job_id
from headpond.jobs.sweeping import sweep
from headpond.testing.clock import FakeClock


async def stored(jobs: Jobs, objects: Objects, kept_s: float | None) -> StoredFile:
    identifier = new_file_id()
    put = await objects.put(f"files/{identifier}", b"{}")
    return await jobs.add_file(
        NewFile(
            id=identifier,
            tenant="mill",
            purpose="batch",
            filename="in.jsonl",
            bytes=put.bytes,
            sha256=put.sha256,
            key=f"files/{identifier}",
            expires_after_s=kept_s,
        )
    )


async def test_what_is_over_is_swept_and_what_is_needed_stays(tmp_path: Path) -> None:
    clock = FakeClock(1_000_000.0)
    database = Database.open(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    jobs, objects = Jobs(database), Objects(f"file://{tmp_path}/objects")
    over, needed = await stored(jobs, objects, 60.0), await stored(jobs, objects, 60.0)
    later, always = await stored(jobs, objects, 600.0), await stored(jobs, objects, None)
    job = NewJob(
        id=new_job_id(),
        tenant="mill",
        endpoint="/v1/echo",
        model="echo",
        bundle="echo@1+0123456789ab",
        input_file_id=needed.id,
        window="24h",
        window_s=86_400.0,
    )
    await jobs.create(job)
    await jobs.create(replace(job, id=new_job_id(), input_file_id=later.id))
    clock.advance(60.0)
    assert await sweep(jobs, objects) == 1
    assert await sweep(jobs, objects) == 0
    kept = {path.name for path in (tmp_path / "objects/files").iterdir()}
    assert kept == {needed.id, later.id, always.id}
    assert over.id not in kept
    database.close()
