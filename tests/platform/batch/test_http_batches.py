"""`/v1/batches` as OpenAI's client meets it, before any worker has looked at a job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from batch_server import ENDPOINT, MODEL, batch_app, batch_server, line, lines
from headpond import Client
from headpond.api_key import ApiKey
from headpond.errors import DeadlineExceeded
from headpond.http.app import build_app
from headpond.jobs.settings import JobStore
from headpond.settings import Settings
from headpond.testing.echo import record
from headpond.testing.scripted import ScriptedBackend

INPUT = lines(line("1"))
KEYS = Settings(
    keys=(
        ApiKey.model_validate({"key": "sk-mill", "tenant": "mill"}),
        ApiKey.model_validate({"key": "sk-brook", "tenant": "brook"}),
        ApiKey.model_validate({"key": "sk-narrow", "tenant": "mill", "models": ["other"]}),
        ApiKey.model_validate({"key": "sk-deaf", "tenant": "mill", "workloads": ["speech"]}),
    )
)


@pytest.fixture
def base_url(tmp_path: Path) -> Iterator[str]:
    with batch_server(tmp_path, settings=KEYS, workers=0) as url:
        yield url


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="sk-mill", max_retries=0) as client:
        yield client


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    jobs = JobStore(folder=str(tmp_path / "data"))
    async with (
        batch_app(tmp_path, Settings(), jobs, workers=0) as app,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://t") as http,
    ):
        yield http


async def uploaded(http: httpx2.AsyncClient, content: bytes = INPUT) -> str:
    files = {"file": ("in.jsonl", content)}
    answer = await http.post("/v1/files", data={"purpose": "batch"}, files=files)
    return str(answer.json()["id"])


async def asked(http: httpx2.AsyncClient, **changed: object) -> httpx2.Response:
    body = {
        "input_file_id": changed.pop("input_file_id", None) or await uploaded(http),
        "endpoint": ENDPOINT,
        "completion_window": "24h",
        **changed,
    }
    return await http.post("/v1/batches", json=body)


def test_a_new_batch_tells_what_was_asked(client: openai.OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", INPUT), purpose="batch")
    made = client.batches.create(
        input_file_id=file.id,
        endpoint=ENDPOINT,  # type: ignore[arg-type]
        completion_window="24h",
        metadata={"for": "tests"},
    )
    assert made.id.startswith("batch_")
    assert (made.object, made.status, made.endpoint) == ("batch", "validating", ENDPOINT)
    assert (made.input_file_id, made.completion_window) == (file.id, "24h")
    assert made.expires_at == made.created_at + 86_400
    assert made.request_counts is not None
    assert made.request_counts.total == 0
    assert (made.model, made.metadata) == (MODEL, {"for": "tests"})
    assert (made.errors, made.output_file_id, made.usage) == (None, None, None)
    assert made.model_extra is not None
    assert made.model_extra["bundle"].startswith("parrot@1.0.0+")
    assert made.model_extra["progress"]["work_done"] == 0
    assert client.batches.retrieve(made.id) == made
    cancelled = client.batches.cancel(made.id)
    assert cancelled.status == "cancelling"
    assert cancelled.cancelling_at is not None


def test_our_client_waits_no_longer_than_told(base_url: str) -> None:
    with Client(base_url=base_url, api_key="sk-mill") as ours:
        file = ours.files.create(INPUT, filename="in.jsonl")
        batch = ours.batches.create(input_file_id=file.id, endpoint=ENDPOINT)
        with pytest.raises(DeadlineExceeded):
            ours.batches.wait(batch.id, poll_s=0.01, timeout_s=0.02)
        assert ours.batches.cancel(batch.id).status == "cancelling"


def test_lists_are_paged_newest_first(client: openai.OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", INPUT), purpose="batch")
    made = [
        client.batches.create(
            input_file_id=file.id,
            endpoint=ENDPOINT,  # type: ignore[arg-type]
            completion_window="24h",
        ).id
        for _ in range(5)
    ]
    page = client.batches.list(limit=2)
    assert page.has_more
    assert [batch.id for batch in page] == made[::-1]


def test_a_batch_is_nobody_elses_and_a_key_opens_what_it_opens(client: openai.OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", INPUT), purpose="batch")

    def create(by: openai.OpenAI) -> str:
        return by.batches.create(
            input_file_id=file.id,
            endpoint=ENDPOINT,  # type: ignore[arg-type]
            completion_window="24h",
        ).id

    made = create(client)
    other = client.with_options(api_key="sk-brook")
    for call in (other.batches.retrieve, other.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            call(made)
    assert other.batches.list().data == []
    with pytest.raises(openai.BadRequestError) as caught:
        create(other)
    assert caught.value.param == "input_file_id"
    for key in ("sk-narrow", "sk-deaf"):
        with pytest.raises(openai.PermissionDeniedError):
            create(client.with_options(api_key=key))
    with pytest.raises(openai.AuthenticationError):
        create(client.with_options(api_key="sk-nobody"))


async def test_an_idempotency_key_makes_one_batch(http: httpx2.AsyncClient) -> None:
    file_id = await uploaded(http)
    http.headers["idempotency-key"] = "monday"
    first = await asked(http, input_file_id=file_id)
    again = await asked(http, input_file_id=file_id, metadata=None, unknown="ignored")
    empty = await asked(http, input_file_id=file_id, metadata={})
    assert first.status_code == again.status_code == 200
    assert first.json()["id"] == again.json()["id"] == empty.json()["id"]
    other = await asked(http, input_file_id=file_id, completion_window="12h")
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "idempotency_conflict"
    assert other.headers["x-should-retry"] == "false"
    http.headers["idempotency-key"] = "tuesday"
    assert (await asked(http, input_file_id=file_id)).json()["id"] != first.json()["id"]
    http.headers["idempotency-key"] = "two words"
    wrong = await asked(http, input_file_id=file_id)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "idempotency-key")


@pytest.mark.parametrize(("window", "seconds"), [("24h", 86_400), ("1h", 3600), ("90m", 5400)])
async def test_a_window_is_the_deadline(
    http: httpx2.AsyncClient, window: str, seconds: int
) -> None:
    made = (await asked(http, completion_window=window)).json()
    assert made["completion_window"] == window
    assert abs(made["expires_at"] - made["created_at"] - seconds) <= 1


async def test_what_a_window_looks_like_is_said_in_words(http: httpx2.AsyncClient) -> None:
    answer = await asked(http, completion_window="three weeks")
    message = answer.json()["error"]["message"]
    assert message == "completion_window: must be a number of hours or minutes, such as 24h or 90m"


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"endpoint": "/v1/nothing"}, "endpoint"),
        ({"endpoint": 5}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "0h"}, "completion_window"),
        ({"completion_window": "721h"}, "completion_window"),
        ({"input_file_id": "file-none"}, "input_file_id"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a" * 65: "b"}}, "metadata"),
        ({"metadata": {"a": "b" * 513}}, "metadata.a"),
        ({"metadata": {str(number): "b" for number in range(17)}}, "metadata"),
        ({"metadata": {"on_invalid_line": "hope"}}, "metadata.on_invalid_line"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 60}},
         "output_expires_after.seconds"),
        ({"output_expires_after": {"seconds": 3600}}, "output_expires_after.anchor"),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named(
    http: httpx2.AsyncClient, changed: dict[str, object], param: str
) -> None:
    answer = await asked(http, **changed)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


async def test_endpoints_are_those_of_the_records(http: httpx2.AsyncClient) -> None:
    answer = await asked(http, endpoint="/v1/chat/completions")
    assert ENDPOINT in answer.json()["error"]["message"]


async def test_only_a_file_for_batches_is_read(http: httpx2.AsyncClient) -> None:
    files = {"file": ("in.jsonl", INPUT)}
    answer = await http.post("/v1/files", data={"purpose": "user_data"}, files=files)
    refused = await asked(http, input_file_id=answer.json()["id"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input_file_id")


async def test_a_file_in_use_is_kept(http: httpx2.AsyncClient) -> None:
    file_id = await uploaded(http)
    await asked(http, input_file_id=file_id)
    kept = await http.delete(f"/v1/files/{file_id}")
    assert (kept.status_code, kept.json()["error"]["code"]) == (409, "file_in_use")


@pytest.mark.parametrize("model", ["a\\u0000b", "\\ud800", "nobody"])
async def test_a_model_that_nobody_serves_still_makes_a_batch(
    http: httpx2.AsyncClient, model: str
) -> None:
    text = line("1").replace(MODEL, model)
    made = await asked(http, input_file_id=await uploaded(http, lines(text)))
    assert made.status_code == 200
    assert made.json()["bundle"] is None


@pytest.mark.parametrize("path", ["/v1/batches/%00", "/v1/files/%00", "/v1/batches/a%20b/cancel"])
async def test_no_identifier_is_a_fault_of_ours(http: httpx2.AsyncClient, path: str) -> None:
    call = http.post if path.endswith("cancel") else http.get
    assert (await call(path)).status_code == 404


@pytest.mark.parametrize("path", ["/v1/files", "/v1/batches", "/v1/batches/b/cancel"])
async def test_an_app_without_jobs_says_so(backend: ScriptedBackend, path: str) -> None:
    app = build_app([record], backend, Settings())
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://t"
    ) as http:
        answer = await http.post(path)
        described = (await http.get("/openapi.json")).json()
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "jobs_not_configured"
    assert "/v1/batches" not in described["paths"]


async def test_metrics_tell_of_jobs_without_naming_any(http: httpx2.AsyncClient) -> None:
    made = (await asked(http)).json()["id"]
    text = (await http.get("/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    by_status = {
        sample.labels["status"]: sample.value for sample in families["headpond_jobs"].samples
    }
    assert by_status["validating"] == 1
    assert by_status["completed"] == 0
    assert families["headpond_jobs_store_up"].samples[0].value == 1
    assert made not in text


@pytest.fixture
def away(tmp_path: Path) -> JobStore:
    (tmp_path / "taken").mkdir()
    return JobStore(database=f"sqlite:///{tmp_path}/taken", objects=f"file://{tmp_path}/o")


async def test_a_database_that_is_away_is_ours_to_answer_for(
    tmp_path: Path, away: JobStore
) -> None:
    async with (
        batch_app(tmp_path, Settings(), away, workers=0) as app,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://t") as http,
    ):
        refused = await http.get("/v1/batches")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "jobs_unavailable"
        assert int(refused.headers["retry-after"]) >= 1
        assert "headpond_jobs_store_up 0.0" in (await http.get("/metrics")).text
        online = await http.post(ENDPOINT, json={"model": MODEL, "text": "hello"})
        assert online.json()["text"] == "hello"
