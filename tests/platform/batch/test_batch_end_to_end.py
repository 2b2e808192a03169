"""Batches from the upload to the results, by OpenAI's client and ours, with a worker at work."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai.types import Batch

from batch_server import ENDPOINT, MODEL, batch_server, line, lines
from headpond import AsyncClient, Client
from headpond.client.errors import BatchFailed
from headpond.errors import InvalidRequest, NotFound
from headpond.jobs_wire import Batch as OurBatch


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with batch_server(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def ours(base_url: str) -> Iterator[Client]:
    with Client(base_url=base_url) as client:
        yield client


def submitted(client: openai.OpenAI, content: bytes, **metadata: str) -> Batch:
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint=ENDPOINT,  # type: ignore[arg-type]
        completion_window="24h",
        metadata=metadata or None,
    )
    until = time.monotonic() + 30
    while batch.status in ("validating", "in_progress", "finalizing", "cancelling"):
        assert time.monotonic() < until
        time.sleep(0.02)
        batch = client.batches.retrieve(batch.id)
    return batch


def content(client: openai.OpenAI, file_id: str | None) -> dict[str, dict[str, object]]:
    if file_id is None:
        return {}
    found = [json.loads(text) for text in client.files.content(file_id).text.splitlines()]
    return {each["custom_id"]: each for each in found}


def test_every_record_is_answered_or_told_of(client: openai.OpenAI) -> None:
    wrong = json.dumps(
        {"custom_id": "wrong", "method": "POST", "url": ENDPOINT, "body": {"model": MODEL}}
    )
    batch = submitted(client, lines(line("a", "one"), line("b", "two"), wrong), of="tests")
    assert (batch.status, batch.errors, batch.metadata) == ("completed", None, {"of": "tests"})
    assert batch.request_counts is not None
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (3, 2, 1)
    assert None not in (batch.in_progress_at, batch.finalizing_at, batch.completed_at)
    outputs, errors = content(client, batch.output_file_id), content(client, batch.error_file_id)
    assert set(outputs) == {"a", "b"}
    answered = outputs["a"]["response"]
    assert isinstance(answered, dict)
    assert (answered["status_code"], answered["body"]["text"]) == (200, "one")
    assert outputs["a"]["error"] is None
    refused = errors["wrong"]["response"]
    assert isinstance(refused, dict)
    assert refused["status_code"] == 400
    assert refused["body"]["error"]["param"] == "text"
    assert errors["wrong"]["error"] is None
    kept = client.files.retrieve(str(batch.output_file_id))
    assert (kept.purpose, kept.filename) == ("batch_output", f"{batch.id}_output.jsonl")
    assert batch.model_extra is not None
    assert batch.model_extra["progress"]["work_done"] == batch.model_extra["progress"]["work_total"]
    assert batch.model_extra["work"]["output_chunks"] == 2


BAD = {
    "invalid_json_line": lines(line("a"), "{nonsense"),
    "duplicate_custom_id": lines(line("a"), line("a")),
    "url_mismatch": lines(line("a"), line("b", url="/v1/other")),
    "model_mismatch": lines(line("a"), line("b", model="other")),
    "empty_file": b"",
}


@pytest.mark.parametrize("code", BAD)
def test_a_bad_file_fails_its_batch_and_every_bad_line_is_listed(
    client: openai.OpenAI, code: str
) -> None:
    batch = submitted(client, BAD[code])
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert (batch.output_file_id, batch.error_file_id) == (None, None)
    assert batch.errors is not None
    assert batch.errors.object == "list"
    assert batch.errors.data is not None
    (error,) = batch.errors.data
    assert (error.code, error.line) == (code, None if code == "empty_file" else 2)
    assert error.message


@pytest.mark.parametrize(
    ("bad", "param"),
    [
        ({"method": "POST", "url": ENDPOINT, "body": {}}, "custom_id"),
        ({"custom_id": 7, "method": "POST", "url": ENDPOINT, "body": {}}, "custom_id"),
        ({"custom_id": "b", "method": "GET", "url": ENDPOINT, "body": {}}, "method"),
        ({"custom_id": "b", "method": "POST", "body": {}}, "url"),
        ({"custom_id": "b", "method": "POST", "url": ENDPOINT}, "body"),
        ({"custom_id": "b", "method": "POST", "url": ENDPOINT, "body": []}, "body"),
    ],
)
def test_a_missing_field_is_named(
    client: openai.OpenAI, bad: dict[str, object], param: str
) -> None:
    batch = submitted(client, lines(line("a"), json.dumps(bad)))
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [(error.line, error.param) for error in batch.errors.data] == [(2, param)]


def test_too_many_records_are_refused(client: openai.OpenAI) -> None:
    batch = submitted(client, lines(*(line(str(number), "x") for number in range(50_001))))
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [error.code for error in batch.errors.data] == ["too_many_tasks"]


def test_bad_lines_may_be_passed_over(client: openai.OpenAI) -> None:
    batch = submitted(client, lines(line("a"), "{nonsense", line("a")), on_invalid_line="skip")
    assert batch.status == "completed"
    assert batch.request_counts is not None
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (3, 1, 2)
    assert set(content(client, batch.output_file_id)) == {"a"}
    told = client.files.content(str(batch.error_file_id)).text.splitlines()
    codes = {json.loads(text)["error"]["code"] for text in told}
    assert codes == {"invalid_json_line", "duplicate_custom_id"}


def test_our_client_waits_and_reads_results(ours: Client, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    names = [f"r{number}" for number in range(3000)]
    path.write_bytes(lines(*(line(name, name) for name in names)))
    sent: list[tuple[int, int]] = []
    file = ours.files.create(path, on_progress=lambda *told: sent.append(told))
    assert sent[-1] == (path.stat().st_size, path.stat().st_size)
    assert b"".join(ours.files.content(file.id)) == path.read_bytes()
    asked = {"input_file_id": file.id, "endpoint": ENDPOINT, "idempotency_key": f"k-{file.id}"}
    batch = ours.batches.create(**asked)  # type: ignore[arg-type]
    assert ours.batches.create(**asked).id == batch.id  # type: ignore[arg-type]
    seen: list[OurBatch] = []
    batch = ours.batches.wait(batch.id, poll_s=0.05, timeout_s=30, on_progress=seen.append)
    assert batch.status == "completed"
    assert seen[-1] == batch
    found = {result.custom_id: result for result in ours.batches.results(batch)}
    assert set(found) == set(names)
    answer = found["r7"].response
    assert answer is not None
    assert answer.status_code == 200
    assert batch.id in [each.id for each in ours.batches.list(limit=5).data]
    assert file.id in [each.id for each in ours.files.list(purpose="batch", limit=100).data]
    assert ours.files.delete(file.id).deleted
    with pytest.raises(NotFound):
        ours.files.retrieve(file.id)


def test_our_async_client_does_the_same(base_url: str) -> None:
    async def run() -> None:
        async with AsyncClient(base_url=base_url) as client:
            file = await client.files.create(lines(line("a", "one")), filename="in.jsonl")
            assert file.filename == "in.jsonl"
            batch = await client.batches.create(input_file_id=file.id, endpoint=ENDPOINT)
            batch = await client.batches.wait(batch.id, poll_s=0.02, timeout_s=30)
            results = [result async for result in client.batches.results(batch.id)]
            assert [result.custom_id for result in results] == ["a"]

    asyncio.run(run())


def test_bodies_are_run_as_a_batch(ours: Client) -> None:
    told: list[OurBatch] = []
    sent: list[tuple[int, int]] = []
    bodies = [{"model": MODEL, "text": text} for text in ("one", "two")]
    found = {
        result.custom_id: result
        for result in ours.batches.run(
            endpoint=ENDPOINT,
            bodies=[*bodies, {"model": MODEL}],
            on_upload=lambda done, total: sent.append((done, total)),
            on_progress=told.append,
        )
    }
    assert sorted(found, key=str) == ["0", "1", "2"]
    answered, refused = found["1"].response, found["2"].response
    assert answered is not None
    assert isinstance(answered.body, dict)
    assert answered.body["text"] == "two"
    assert refused is not None
    assert refused.status_code == 400
    assert told[-1].over
    assert sent[-1][0] == sent[-1][1]


async def test_bodies_have_names_from_asyncio(base_url: str) -> None:
    async with AsyncClient(base_url=base_url) as client:
        run = client.batches.run(endpoint=ENDPOINT, bodies={"a": {"model": MODEL, "text": "one"}})
        assert [result.custom_id async for result in run] == ["a"]
        with pytest.raises(BatchFailed, match="no records"):
            _ = [each async for each in client.batches.run(endpoint=ENDPOINT, bodies=[])]


def test_what_json_cannot_express_is_not_uploaded(ours: Client) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        list(ours.batches.run(endpoint=ENDPOINT, bodies=[{"text": object()}]))
    assert refusal.value.param == "0"


def test_lists_go_on_over_pages(ours: Client) -> None:
    made = [ours.files.create(b"{}", purpose="user_data").id for _ in range(5)]
    page = ours.files.list(purpose="user_data", limit=2, order="asc")
    assert (len(page.data), page.has_more) == (2, True)
    assert [file.id for file in page] == made
    last = ours.files.list(purpose="user_data", after=made[3])
    assert [file.id for file in last.data] == [made[2], made[1], made[0]]
    assert last.next_page() is None


async def test_async_lists_go_on_over_pages(base_url: str) -> None:
    async with AsyncClient(base_url=base_url) as client:
        made = {(await client.files.create(b"{}", purpose="vision")).id for _ in range(3)}
        page = await client.files.list(purpose="vision", limit=2)
        assert {file.id async for file in page} == made
        batches = await client.batches.list(limit=1)
        assert len([batch async for batch in batches]) >= 1
