"""Jobs take turns: a small one does not wait for a large one, nor a large one for ever."""

from __future__ import annotations

import asyncio

import pytest

from batches import Mill, as_jsonl, echo_line, require_exactly_once, until
from headpond.call import Answer, Call
from headpond.jobs import reading
from headpond.jobs.claim import Claim
from headpond.jobs.computing import Pace
from headpond.jobs.job import Job
from headpond.jobs.leases import Leases
from headpond.testing.answering import AnsweringBackend
from headpond.testing.clock import FakeClock

SHARD = 10


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHARD_RECORDS", SHARD)


async def submitted(mill: Mill, name: str, records: int, *, read: bool = True) -> Job:
    """Make a job, and have its input read."""
    lines = [echo_line(f"{name}{number}") for number in range(records)]
    job = await mill.submit(as_jsonl(lines))
    if read:
        assert await mill.worker().step()
    return job


async def claimed(leases: Leases, clock: FakeClock) -> Claim:
    clock.advance(1.0)
    claim = await leases.claim()
    assert claim is not None
    return claim


async def test_shards_go_to_the_job_that_was_served_longest_ago(
    mill: Mill, clock: FakeClock
) -> None:
    leases = Leases(mill.database, "worker", lease_s=1000.0)
    large = await submitted(mill, "large", SHARD * 5)
    first = [await claimed(leases, clock) for _ in range(2)]
    small = await submitted(mill, "small", SHARD * 2)
    then = [await claimed(leases, clock) for _ in range(4)]
    assert [claim.job.id for claim in first] == [large.id, large.id]
    assert [claim.job.id for claim in then] == [small.id, large.id, small.id, large.id]


async def test_a_shard_makes_room_for_a_smaller_job_only(mill: Mill, clock: FakeClock) -> None:
    leases = Leases(mill.database, "worker", lease_s=1000.0)
    await submitted(mill, "large", SHARD * 5)
    claim = await claimed(leases, clock)
    assert not (await leases.renew(claim)).make_room
    await submitted(mill, "other", SHARD * 5)
    assert not (await leases.renew(claim)).make_room
    await claimed(leases, clock)
    await submitted(mill, "s", 3)
    assert (await leases.renew(claim, completed=2)).make_room
    assert not (await leases.renew(claim, completed=8)).make_room  # nearly done itself
    small = await claimed(leases, clock)
    assert small.job.progress.total == 3
    assert not (await leases.renew(claim)).make_room
    # What waits for something else is not waited for.
    await leases.release(small, waits_for="a bundle")
    assert not (await leases.renew(claim)).make_room


async def test_an_input_that_is_to_be_read_gets_room_and_one_that_is_read_makes_none(
    mill: Mill, clock: FakeClock
) -> None:
    leases = Leases(mill.database, "worker", lease_s=1000.0)
    await submitted(mill, "large", SHARD * 5)
    shard = await claimed(leases, clock)
    await submitted(mill, "small", 1, read=False)
    assert (await leases.renew(shard)).make_room
    read = await claimed(leases, clock)
    await submitted(mill, "other", 1, read=False)
    assert not (await leases.renew(read)).make_room


class SlowBackend(AnsweringBackend):
    """Takes a moment for each call."""

    async def submit(self, call: Call) -> Answer:
        await asyncio.sleep(0.002)
        return await super().submit(call)


async def test_a_small_job_is_done_while_one_worker_computes_a_large_shard(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SHARD_RECORDS", 100_000)
    mill.backend = SlowBackend(cards=mill.backend.cards, compute=mill.backend.compute)
    large = await submitted(mill, "large", 2000)
    # The clock stands still, so this lease lasts; what it is told comes every few milliseconds.
    worker = mill.worker(shards=1, lease_s=0.03, pace=Pace(in_flight=1, turn_s=0.0))
    running = asyncio.create_task(worker.run())

    async def begun() -> bool:
        return bool(mill.computed)

    await until(begun)
    small = await submitted(mill, "small", 3, read=False)
    await until(lambda: mill.is_over(small))
    assert (await mill.job(large)).progress.completed < 2000
    await require_exactly_once(mill, small, ["small0", "small1", "small2"])
    worker.stop()
    await running
