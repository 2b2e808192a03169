"""Jobs from their input to their files, by workers in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batches import (
    BUNDLE,
    CARD,
    ENDPOINT,
    TENANT,
    Line,
    Mill,
    as_jsonl,
    echo_line,
    mill_at,
    require_exactly_once,
)
from headpond.call import Call, Priority
from headpond.errors import EngineFailed, InvalidRequest, Overloaded, WorkerLost
from headpond.jobs import input_line, reading
from headpond.jobs.computing import Pace
from headpond.jobs.job import Job, JobStatus
from headpond.jobs.leases import Leases
from headpond.jobs.reading import MOST_RECORDS
from headpond.testing.clock import FakeClock
from headpond.testing.echo_dialect import EchoItem
from mortality import Death


@pytest.fixture(params=["singly", "in groups"])
def mill(tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[Mill]:
    mill = mill_at(tmp_path, clock, formed=request.param == "in groups")
    yield mill
    mill.database.close()


def names(count: int) -> list[str]:
    return [f"r{number}" for number in range(count)]


async def test_every_record_has_its_answer(mill: Mill) -> None:
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(300)]))
    assert job.status is JobStatus.VALIDATING
    await mill.drain()
    job = await mill.job(job)
    assert job.status is JobStatus.COMPLETED
    assert (job.progress.total, job.progress.completed, job.progress.failed) == (300, 300, 0)
    assert job.usage == {"output_chunks": 300}
    await require_exactly_once(mill, job, names(300))
    output, error = await mill.lines(job)
    assert not error
    line = next(line for line in output if line["custom_id"] == "r7")
    assert line["error"] is None
    assert line["response"]["status_code"] == 200
    assert line["response"]["bundle"] == BUNDLE
    assert line["response"]["body"] == {"model": "echo", "text": "r7"}
    assert set(mill.computed.values()) == {1}
    assert {call.tenant for call in mill.backend.calls} == {TENANT}
    assert {call.model for call in mill.backend.calls} == {BUNDLE}
    assert {call.priority for call in mill.backend.calls} == {Priority.BATCH}


async def test_a_record_that_is_refused_is_told_as_http_would(mill: Mill) -> None:
    body = {"model": "echo", "text": 7}
    streamed = {"model": "echo", "text": "x", "stream": True}
    lines = [echo_line("good"), echo_line("bad", body=body), echo_line("stream", body=streamed)]
    job = await mill.submit(as_jsonl([*lines, echo_line("long", "long")]))

    def rule(text: str) -> str:
        if text == "long":
            raise InvalidRequest("It is too long.", param="text")
        return text

    mill.rule = rule
    await mill.drain()
    await require_exactly_once(mill, job, ["good", "bad", "stream", "long"])
    output, error = await mill.lines(job)
    assert [line["custom_id"] for line in output] == ["good"]
    told = {line["custom_id"]: line for line in error}
    assert {line["error"] for line in error} == {None}
    assert {line["response"]["status_code"] for line in error} == {400}
    params = {name: line["response"]["body"]["error"]["param"] for name, line in told.items()}
    assert params == {"bad": "text", "stream": "stream", "long": "text"}
    assert (await mill.job(job)).status is JobStatus.COMPLETED


BAD_LINES: list[tuple[Line | str, str]] = [
    ("{", "invalid_json_line"),
    ("[]", "invalid_json_line"),
    (echo_line("a"), "duplicate_custom_id"),
    (echo_line("c", url="/v1/other"), "url_mismatch"),
    (echo_line("d", method="GET"), "invalid_method"),
    (echo_line("e", body=None), "missing_required_parameter"),
    (echo_line("f", custom_id=None), "missing_required_parameter"),
    (echo_line("g", custom_id=7), "invalid_type"),
    (echo_line("h", body=[]), "invalid_type"),
    (echo_line("i", body={"model": "other", "text": "x"}), "model_mismatch"),
    (echo_line("j", body={"model": 7, "text": "x"}), "invalid_type"),
]


async def test_every_bad_line_is_listed_and_fails_the_job(mill: Mill) -> None:
    lines = [echo_line("a"), "", *(line for line, _ in BAD_LINES)]
    job = await mill.submit(as_jsonl(lines))
    await mill.drain()
    job = await mill.job(job)
    assert job.status is JobStatus.FAILED
    found = [(error.line, error.code) for error in job.errors]
    assert found == [(number, code) for number, (_, code) in enumerate(BAD_LINES, start=3)]
    assert not mill.computed
    assert job.output_file_id is job.error_file_id is None


GOOD = as_jsonl([echo_line("b")])


@pytest.mark.parametrize(
    "line",
    [
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b'"b"', b'"\xff"', 1),
        GOOD.replace(b'"b"', b"NaN", 1),
        GOOD.replace(b'"b"', b'"\x00"', 1),
        GOOD.rstrip()[:-1] + b"\n",
        GOOD.rstrip() + GOOD,
        b"\x00\n",
        b"[" * 100_000 + b"\n",
    ],
    ids=["BOM", "no UTF-8", "NaN", "NUL", "cut off", "two in one", "binary", "nested"],
)
async def test_a_line_that_is_no_json_is_told_of(mill: Mill, line: bytes) -> None:
    job = await mill.submit(as_jsonl([echo_line("a")]) + line + as_jsonl([echo_line("c")]))
    await mill.drain()
    job = await mill.job(job)
    assert job.status is JobStatus.FAILED
    assert [(error.code, error.line) for error in job.errors] == [("invalid_json_line", 2)]


async def test_a_line_that_is_too_long_is_told_of_and_never_held(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reading, input_line):
        monkeypatch.setattr(module, "MOST_LINE_BYTES", 200)
    lines = [echo_line("a"), echo_line("long", "x" * 1000), echo_line("c")]
    job = await mill.submit(as_jsonl(lines), on_invalid_line="skip")
    await mill.drain()
    output, error = await mill.lines(job)
    assert {line["custom_id"] for line in output} == {"a", "c"}
    assert [line["error"]["code"] for line in error] == ["line_too_large"]
    assert error[0]["error"]["message"].startswith("Line 2:")


@pytest.mark.parametrize(
    "content",
    [
        GOOD.rstrip(),
        GOOD.replace(b"\n", b"\r\n"),
        b"\n \n\t\r\n" + GOOD + b"\n\n",
    ],
    ids=["no newline", "CRLF", "blank lines"],
)
async def test_how_lines_end_does_not_matter(mill: Mill, content: bytes) -> None:
    job = await mill.submit(content)
    await mill.drain()
    assert (await mill.job(job)).status is JobStatus.COMPLETED
    await require_exactly_once(mill, job, ["b"])


async def test_bad_lines_are_passed_over_when_that_is_asked(mill: Mill) -> None:
    lines = [echo_line("a"), *(line for line, _ in BAD_LINES)]
    job = await mill.submit(as_jsonl(lines), on_invalid_line="skip")
    await mill.drain()
    job = await mill.job(job)
    assert job.status is JobStatus.COMPLETED
    assert (job.progress.total, job.progress.completed) == (len(lines), 1)
    output, error = await mill.lines(job)
    assert [line["custom_id"] for line in output] == ["a"]
    assert sorted(line["error"]["code"] for line in error) == sorted(c for _, c in BAD_LINES)
    named = [line["custom_id"] for line in error if line["custom_id"] is not None]
    assert named == ["a", "c", "d", "e", "h", "i", "j"]


@pytest.mark.parametrize("first", ["{", echo_line("x", body={"model": "other", "text": "x"})])
async def test_the_model_is_that_of_the_first_line_that_names_a_served_one(
    mill: Mill, first: Line | str
) -> None:
    # The only model is not taken for granted: there are two.
    mill.backend.cards = [*mill.backend.cards, replace(CARD, name="second")]
    lines = [first, echo_line("a", body={"model": "second", "text": "a"})]
    job = await mill.submit(as_jsonl(lines), on_invalid_line="skip")
    await mill.drain()
    job = await mill.job(job)
    assert (job.status, job.model) == (JobStatus.COMPLETED, "second")
    assert (job.progress.completed, job.progress.failed) == (1, 1)


async def test_of_many_bad_lines_some_are_listed_and_the_others_counted(mill: Mill) -> None:
    job = await mill.submit(as_jsonl([echo_line("a"), *["x"] * 300]))
    await mill.drain()
    job = await mill.job(job)
    assert job.status is JobStatus.FAILED
    assert [error.line for error in job.errors] == [*range(2, 102), None]
    assert (job.errors[-1].code, "200" in job.errors[-1].message) == ("more_errors", True)


async def test_bad_lines_count_as_records(mill: Mill) -> None:
    content = as_jsonl([echo_line("a")]) + b"x\n" * MOST_RECORDS
    job = await mill.submit(content, on_invalid_line="skip")
    await mill.drain()
    assert [error.code for error in (await mill.job(job)).errors] == ["too_many_tasks"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (b"\n\n", "empty_file"),
        (as_jsonl([echo_line("a", body={"model": "none", "text": ""})]), "model_not_found"),
    ],
)
async def test_a_file_that_cannot_be_run_fails_its_job(
    mill: Mill, content: bytes, code: str
) -> None:
    job = await mill.submit(content)
    await mill.drain()
    job = await mill.job(job)
    assert (job.status, [error.code for error in job.errors]) == (JobStatus.FAILED, [code])


async def test_what_is_refused_for_load_is_asked_again(mill: Mill) -> None:
    refusals = iter([Overloaded(retry_after_s=0.01), Overloaded(retry_after_s=0.01)])

    def admit(_: object) -> None:
        for refusal in refusals:
            raise refusal

    mill.backend.admit = admit
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(3)]))
    await mill.drain()
    await require_exactly_once(mill, job, names(3))
    assert (await mill.job(job)).progress.completed == 3


async def test_a_poison_record_is_isolated_and_the_others_are_computed(mill: Mill) -> None:
    def admit(call: Call) -> None:
        if EchoItem(text="r5") in call.items:
            raise WorkerLost

    mill.backend.admit = admit
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(40)]))
    await mill.drain()
    await require_exactly_once(mill, job, names(40))
    _, error = await mill.lines(job)
    assert [(line["custom_id"], line["error"]["code"]) for line in error] == [
        ("r5", "poison_record")
    ]
    assert "3 times" in error[0]["error"]["message"]


def nested(levels: int) -> str:
    """Return an input line whose body is nested so deep."""
    body = '{"model": "echo", "text": ' + "[" * levels + "]" * levels + "}"
    return f'{{"custom_id": "deep", "method": "POST", "url": "{ENDPOINT}", "body": {body}}}'


async def test_a_body_that_is_nested_deep_is_refused_alone(mill: Mill) -> None:
    job = await mill.submit(as_jsonl([echo_line("a"), nested(300), echo_line("b")]))
    await mill.drain()
    await require_exactly_once(mill, job, ["a", "deep", "b"])
    _, error = await mill.lines(job)
    assert [(line["custom_id"], line["response"]["status_code"]) for line in error] == [
        ("deep", 400)
    ]


async def run_spoilt(mill: Mill, folder: Path, clock: FakeClock, *, cancel: bool) -> Job:
    """Run a job of 8 records, one of which is spoilt in the object store, until it is over."""
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(8)]))
    await mill.worker().step()
    (shard,) = (folder / "objects" / "jobs" / job.id).glob("*/shard-0.jsonl")
    shard.write_bytes(shard.read_bytes().replace(b'{"custom_id": "r5"', b'?"custom_id": "r5"'))
    if cancel:
        await mill.jobs.cancel(job.id, TENANT)
    for _ in range(100):
        await mill.drain()
        if await mill.is_over(job):
            break
        clock.advance(61.0)
    return await mill.job(job)


async def test_a_record_that_cannot_be_loaded_is_isolated(
    mill: Mill, tmp_path: Path, clock: FakeClock
) -> None:
    job = await run_spoilt(mill, tmp_path, clock, cancel=False)
    assert job.status is JobStatus.COMPLETED
    output, error = await mill.lines(job)
    assert len(output) == 7
    assert [(line["custom_id"], line["error"]["code"]) for line in error] == [
        (None, "poison_record")
    ]


async def test_a_cancelled_job_ends_when_a_record_cannot_be_loaded(
    mill: Mill, tmp_path: Path, clock: FakeClock
) -> None:
    job = await run_spoilt(mill, tmp_path, clock, cancel=True)
    assert job.status is JobStatus.CANCELLED
    output, error = await mill.lines(job)
    assert (len(output), len(error)) == (0, 8)


async def test_a_record_that_kills_its_worker_is_isolated(mill: Mill, clock: FakeClock) -> None:
    def rule(text: str) -> str:
        if text == "r3":
            raise Death
        return text

    mill.rule = rule
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(40)]))
    deaths = 0
    while not await mill.is_over(job):
        try:
            await mill.drain(mill.worker(f"worker-{deaths}"))
        except Death:
            deaths += 1
        clock.advance(31.0)
    await require_exactly_once(mill, job, names(40))
    _, error = await mill.lines(job)
    assert [(line["custom_id"], line["error"]["code"]) for line in error] == [
        ("r3", "poison_record")
    ]
    assert 3 < deaths < 12  # by halves, not one by one


async def test_a_failure_of_the_engine_is_the_records_own(mill: Mill) -> None:
    def rule(text: str) -> str:
        if text == "r1":
            raise EngineFailed
        return text

    mill.rule = rule
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(3)]))
    await mill.drain()
    await require_exactly_once(mill, job, names(3))
    _, error = await mill.lines(job)
    assert [line["response"]["status_code"] for line in error] == [500]


async def test_what_is_done_is_kept_when_a_job_is_cancelled(mill: Mill) -> None:
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(200)]))
    worker = mill.worker(pace=Pace(in_flight=1, shard_s=0.0))
    assert await worker.step()
    for _ in range(3):
        await worker.step()
    progress = (await mill.job(job)).progress
    done = progress.completed
    assert 0 < done < 200
    await mill.jobs.cancel(job.id, TENANT)
    await mill.drain(worker)
    now = await mill.job(job)
    assert now.status is JobStatus.CANCELLED
    output, error = await mill.lines(job)
    await require_exactly_once(mill, job, names(200))
    assert len(output) == done
    assert {line["error"]["code"] for line in error} == {"batch_cancelled"}
    assert now.progress.work_done == progress.work_done < now.progress.work_total


async def test_a_cancelled_job_ends_though_no_worker_serves_its_endpoint(mill: Mill) -> None:
    job = await mill.submit(as_jsonl([echo_line("a")]))
    await mill.worker().step()
    mill.endpoints = {}
    await mill.jobs.cancel(job.id, TENANT)
    await mill.drain()
    assert (await mill.job(job)).status is JobStatus.CANCELLED


async def test_a_job_that_is_cancelled_before_it_was_read_has_no_files(mill: Mill) -> None:
    job = await mill.submit(as_jsonl([echo_line("a")]))
    await mill.jobs.cancel(job.id, TENANT)
    await mill.drain()
    now = await mill.job(job)
    assert (now.status, now.output_file_id, now.error_file_id) == (JobStatus.CANCELLED, None, None)


async def test_what_is_not_done_by_the_deadline_expires(mill: Mill, clock: FakeClock) -> None:
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(200)]))
    worker = mill.worker(pace=Pace(in_flight=1, shard_s=0.0))
    for _ in range(3):
        await worker.step()
    done = (await mill.job(job)).progress.completed
    assert 0 < done < 200
    clock.advance(86_400.0)
    await mill.drain(worker)
    now = await mill.job(job)
    assert now.status is JobStatus.EXPIRED
    await require_exactly_once(mill, job, names(200))
    output, error = await mill.lines(job)
    assert len(output) == done
    assert {line["error"]["code"] for line in error} == {"batch_expired"}


async def test_a_pressing_deadline_makes_calls_ordinary_ones(mill: Mill, clock: FakeClock) -> None:
    await mill.submit(as_jsonl([echo_line(name) for name in names(5)]))
    await mill.worker().step()
    clock.advance(50_000.0)
    await mill.drain()
    assert {call.priority for call in mill.backend.calls} == {Priority.NORMAL}


async def test_a_bundle_that_is_not_served_is_waited_for(mill: Mill, clock: FakeClock) -> None:
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(5)]))
    cards, mill.backend.cards = mill.backend.cards, []
    worker = mill.worker(pace=Pace(patience_s=0.0))
    await mill.drain(worker)
    now = await mill.job(job)
    assert now.status is JobStatus.IN_PROGRESS
    assert now.waits_for is not None
    assert BUNDLE in now.waits_for
    mill.backend.cards = cards
    clock.advance(60.0)
    await mill.drain(worker)
    now = await mill.job(job)
    assert (now.status, now.waits_for) == (JobStatus.COMPLETED, None)
    await require_exactly_once(mill, job, names(5))


async def test_an_idle_worker_gets_a_part_of_what_another_runs(mill: Mill) -> None:
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(64)]))
    await mill.worker().step()
    slow = Leases(mill.database, "slow", lease_s=30.0)
    claim = await slow.claim()
    assert claim is not None
    assert await slow.ask_for_tail(16)
    assert not await slow.ask_for_tail(16)
    assert (await slow.renew(claim)).give_tail
    await slow.release(claim)
    await mill.drain()
    await require_exactly_once(mill, job, names(64))


async def test_results_that_were_spoilt_are_computed_again(mill: Mill, tmp_path: Path) -> None:
    job = await mill.submit(as_jsonl([echo_line(name) for name in names(20)]))
    worker = mill.worker()
    await worker.step()
    await worker.step()
    (spoilt,) = (tmp_path / "objects" / "jobs" / job.id).glob("*-output.jsonl")
    spoilt.write_bytes(spoilt.read_bytes().replace(b"r7", b"r8"))
    await mill.drain(worker)
    assert (await mill.job(job)).status is JobStatus.COMPLETED
    await require_exactly_once(mill, job, names(20))
    assert set(mill.computed.values()) == {2}
