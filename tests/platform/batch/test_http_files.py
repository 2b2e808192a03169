"""`/v1/files` as OpenAI's client meets it: streamed, each tenant's own, and for a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import openai
import psutil
import pytest

from batch_server import batch_app, batch_server
from headpond.api_key import ApiKey
from headpond.http.app import ASGIApp
from headpond.jobs.settings import JobStore
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest

CONTENT = b'{"custom_id": "1"}\n'
KEYS = Settings(
    keys=(
        ApiKey.model_validate({"key": "sk-mill", "tenant": "mill"}),
        ApiKey.model_validate({"key": "sk-brook", "tenant": "brook"}),
    )
)


@pytest.fixture
def base_url(tmp_path: Path) -> Iterator[str]:
    with batch_server(tmp_path, settings=KEYS) as url:
        yield url


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="sk-mill", max_retries=0) as client:
        yield client


@pytest.fixture
def other(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="sk-brook", max_retries=0) as client:
        yield client


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[ASGIApp]:
    jobs = JobStore(folder=str(tmp_path / "data"), most_file_bytes=1000)  # type: ignore[arg-type]
    async with batch_app(tmp_path, Settings(), jobs) as app:
        yield app


def test_a_file_comes_back_as_it_was_sent(client: openai.OpenAI) -> None:
    made = client.files.create(file=("my lines.jsonl", CONTENT), purpose="batch")
    assert made.id.startswith("file-")
    assert (made.filename, made.bytes, made.purpose) == ("my lines.jsonl", len(CONTENT), "batch")
    assert made.expires_at is not None
    assert made.expires_at - made.created_at == 30 * 86_400
    assert client.files.retrieve(made.id) == made
    content = client.files.content(made.id)
    assert content.read() == CONTENT
    assert client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.files.content(made.id)


def test_a_caller_says_how_long_a_file_is_kept(client: openai.OpenAI) -> None:
    made = client.files.create(
        file=("a.jsonl", CONTENT),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert made.expires_at == made.created_at + 3600
    kept = client.files.create(file=("a.txt", CONTENT), purpose="user_data")
    assert kept.expires_at is None


def test_lists_are_paged_in_either_order(client: openai.OpenAI) -> None:
    made = [
        client.files.create(file=(f"{number}.jsonl", CONTENT), purpose="batch").id
        for number in range(5)
    ]
    client.files.create(file=("other.jsonl", CONTENT), purpose="user_data")
    for order, expected in (("asc", made), ("desc", made[::-1])):
        page = client.files.list(purpose="batch", limit=2, order=order)  # type: ignore[arg-type]
        assert page.has_more
        assert [file.id for file in page] == expected  # the client asks for the other pages
    assert len(client.files.list().data) == 6


def test_a_file_is_nobody_elses(client: openai.OpenAI, other: openai.OpenAI) -> None:
    made = client.files.create(file=("a.jsonl", CONTENT), purpose="batch").id
    for call in (other.files.retrieve, other.files.content, other.files.delete):
        with pytest.raises(openai.NotFoundError):
            call(made)
    assert other.files.list().data == []
    with pytest.raises(openai.BadRequestError):
        other.files.list(after=made)
    stranger = other.with_options(api_key="sk-nobody")
    for refused in (
        stranger.files.list,
        lambda: stranger.files.create(file=("a", b"x"), purpose="batch"),
    ):
        with pytest.raises(openai.AuthenticationError):
            refused()


@pytest.mark.parametrize(
    ("fields", "files", "param"),
    [
        ({}, {"file": ("a", b"x")}, "purpose"),
        ({"purpose": "mischief"}, {"file": ("a", b"x")}, "purpose"),
        ({"purpose": "batch"}, {"other": ("a", b"x")}, "file"),
        (
            {"purpose": "batch", "expires_after[anchor]": "now", "expires_after[seconds]": "3600"},
            {"file": ("a", b"x")},
            "expires_after.anchor",
        ),
        (
            {
                "purpose": "batch",
                "expires_after[anchor]": "created_at",
                "expires_after[seconds]": "1",
            },
            {"file": ("a", b"x")},
            "expires_after.seconds",
        ),
        ({"purpose": "batch", "expires_after": "soon"}, {"file": ("a", b"x")}, "expires_after"),
        ({"purpose": "batch"}, [("file", ("a", b"x")), ("file", ("b", b"y"))], "file"),
    ],
)
async def test_a_wrong_upload_names_its_field(
    app: ASGIApp, fields: dict[str, str], files: object, param: str
) -> None:
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as http:
        answer = await http.post("/v1/files", data=fields, files=files)  # type: ignore[arg-type]
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{}", 400),
        ("multipart/form-data", b"", 400),
        ("multipart/form-data; boundary=x", b"", 400),
        ("multipart/form-data; boundary=x", b"--x\r\nnonsense", 400),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\ncut off',
            400,
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
            + b"y" * 1001
            + b"\r\n--x--\r\n",
            413,
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\n'
            + b"y" * 5000
            + b"\r\n--x--\r\n",
            413,
        ),
    ],
)
async def test_what_is_no_upload_is_refused(
    app: ASGIApp, content_type: str, body: bytes, status: int, tmp_path: Path
) -> None:
    halves = [body[: len(body) // 2], body[len(body) // 2 :]]
    headers = {"content-type": content_type}
    request = await AsgiRequest(path="/v1/files", parts=halves, headers=headers).run(app)
    assert request.status == status
    assert set(json.loads(request.body)["error"]) == {"message", "type", "param", "code"}
    assert not (tmp_path / "data/objects").exists()


async def test_when_a_file_goes_may_be_said_in_json(app: ASGIApp) -> None:
    transport = httpx2.ASGITransport(app=app)
    fields = {"purpose": "batch", "expires_after": '{"anchor": "created_at", "seconds": 7200}'}
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as http:
        made = await http.post("/v1/files", data=fields, files={"file": ("a", b"x")})
    assert made.json()["expires_at"] == made.json()["created_at"] + 7200


async def test_folders_and_control_characters_of_a_name_are_dropped(app: ASGIApp) -> None:
    body = (
        b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="../a\x01\x7f.jsonl"\r\n\r\n'
        b"\r\n--x--\r\n"
    )
    headers = {"content-type": "multipart/form-data; boundary=x"}
    request = await AsgiRequest(path="/v1/files", parts=[body], headers=headers).run(app)
    assert request.status == 200
    found = json.loads(request.body)
    assert (found["filename"], found["bytes"]) == ("a__.jsonl", 0)


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=10001", "order=up", "after=%00"])
async def test_a_wrong_query_names_its_field(app: ASGIApp, query: str) -> None:
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://test"
    ) as http:
        answer = await http.get(f"/v1/files?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.partition("=")[0]


async def test_an_object_that_is_gone_is_not_found(app: ASGIApp, tmp_path: Path) -> None:
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://test"
    ) as http:
        made = await http.post(
            "/v1/files", data={"purpose": "batch"}, files={"file": ("a", CONTENT)}
        )
        (stored,) = (tmp_path / "data/objects/files").iterdir()
        stored.unlink()
        answer = await http.get(f"/v1/files/{made.json()['id']}/content")
    assert answer.status_code == 404


SERVER = """
import sys, time
from pathlib import Path
from batch_server import batch_server
with batch_server(Path(sys.argv[1])) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


def test_a_large_file_is_never_held_in_memory(tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    block = os.urandom(2**20)
    with large.open("wb") as file:
        for _ in range(190):
            file.write(block)
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)],
        cwd=Path(__file__).parents[2],  # where the module of the server is
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
            warm = client.files.create(file=("warm.jsonl", CONTENT), purpose="batch")
            client.files.content(warm.id).read()
            process = psutil.Process(server.pid)
            before = peak_bytes(process)
            with large.open("rb") as file:
                made = client.files.create(file=file, purpose="batch")
            with client.files.with_streaming_response.content(made.id) as streamed:
                size = sum(len(part) for part in streamed.iter_bytes(2**20))
            assert size == large.stat().st_size
            assert peak_bytes(process) - before < 32 * 2**20
        server.stdin.close()  # type: ignore[union-attr]


def peak_bytes(process: psutil.Process) -> int:
    """Return the most memory that a process ever held."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(
        int(text.split()[1]) * 1024 for text in status.splitlines() if text.startswith("VmHWM")
    )
