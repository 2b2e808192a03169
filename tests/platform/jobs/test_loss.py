"""Jobs whose objects are gone from the store, which answers: they fail, and say why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from batches import Mill, as_jsonl, echo_line, require_exactly_once
from headpond.jobs.errors import LeaseLost
from headpond.jobs.job import Job, JobStatus
from headpond.jobs.leases import Leases
from headpond.jobs.loss import MOST_LOOKS
from headpond.testing.clock import FakeClock

NAMES = [f"r{number}" for number in range(20)]
CONTENT = as_jsonl([echo_line(name) for name in NAMES])
LATER_S = 61.0
"""No task waits longer before it is tried again."""


async def look(mill: Mill, clock: FakeClock, times: int) -> None:
    """Let a worker do what there is, again and again."""
    for _ in range(times):
        await mill.drain()
        clock.advance(LATER_S)


async def failed_with(mill: Mill, job: Job) -> str:
    """Check that a job has failed for one reason, and that nothing of it is left to do."""
    now = await mill.job(job)
    assert now.status is JobStatus.FAILED
    assert now.waits_for is None
    assert not await mill.worker().step()
    (error,) = now.errors
    return error.code


async def test_an_input_that_stays_away_fails_its_job(
    mill: Mill, clock: FakeClock, tmp_path: Path
) -> None:
    job = await mill.submit(CONTENT)
    shutil.rmtree(tmp_path / "objects/files")
    await look(mill, clock, MOST_LOOKS - 1)
    now = await mill.job(job)
    assert now.status is JobStatus.VALIDATING
    assert "not there any more" in str(now.waits_for)
    await look(mill, clock, 1)
    assert await failed_with(mill, job) == "file_not_found"


async def test_an_input_that_comes_back_is_read(
    mill: Mill, clock: FakeClock, tmp_path: Path
) -> None:
    job = await mill.submit(CONTENT)
    (tmp_path / "objects/files").rename(tmp_path / "elsewhere")
    await look(mill, clock, MOST_LOOKS - 1)
    (tmp_path / "elsewhere").rename(tmp_path / "objects/files")
    await look(mill, clock, 1)
    assert (await mill.job(job)).status is JobStatus.COMPLETED
    await require_exactly_once(mill, job, NAMES)


async def test_an_input_that_is_another_now_fails_its_job(
    mill: Mill, clock: FakeClock, tmp_path: Path
) -> None:
    job = await mill.submit(CONTENT)
    (file,) = (tmp_path / "objects/files").iterdir()
    file.write_bytes(CONTENT[:-5])
    await look(mill, clock, MOST_LOOKS)
    assert await failed_with(mill, job) == "object_lost"
    assert not mill.computed


@pytest.mark.parametrize("cancel", [False, True])
async def test_records_that_are_gone_fail_their_job_and_no_other(
    mill: Mill, clock: FakeClock, tmp_path: Path, *, cancel: bool
) -> None:
    job, other = await mill.submit(CONTENT), await mill.submit(CONTENT)
    worker = mill.worker()
    await worker.step()
    await worker.step()
    shutil.rmtree(tmp_path / "objects/jobs" / job.id)
    if cancel:
        await mill.jobs.cancel(job.id, job.tenant)
    await look(mill, clock, MOST_LOOKS)
    assert await failed_with(mill, job) == "object_lost"
    await require_exactly_once(mill, other, NAMES)


async def test_a_job_that_fails_takes_back_what_others_hold(
    mill: Mill, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headpond.jobs.reading.SHARD_RECORDS", 10)
    job = await mill.submit(CONTENT)
    await mill.worker().step()
    held = Leases(mill.database, "other", lease_s=1e6)
    claim = await held.claim()
    assert claim is not None
    shutil.rmtree(tmp_path / "objects/jobs" / job.id)
    await look(mill, clock, MOST_LOOKS)
    assert await failed_with(mill, job) == "object_lost"
    with pytest.raises(LeaseLost):
        await held.renew(claim)


async def test_error_lines_that_are_gone_fail_their_job(
    mill: Mill, clock: FakeClock, tmp_path: Path
) -> None:
    job = await mill.submit(CONTENT + b"{\n", on_invalid_line="skip")
    await mill.worker().step()
    (invalid,) = (tmp_path / "objects/jobs" / job.id).glob("*/invalid.jsonl")
    invalid.unlink()
    await look(mill, clock, MOST_LOOKS)
    assert await failed_with(mill, job) == "object_lost"


async def test_results_that_are_lost_each_time_are_not_computed_for_ever(
    mill: Mill, clock: FakeClock, tmp_path: Path
) -> None:
    job = await mill.submit(CONTENT)
    worker = mill.worker()
    for _ in range(200):
        for part in (tmp_path / "objects/jobs" / job.id).glob("*-output.jsonl"):
            part.unlink()
        if not await worker.step():
            if await mill.is_over(job):
                break
            clock.advance(LATER_S)
    assert await failed_with(mill, job) == "object_lost"
    assert max(mill.computed.values()) == 3
