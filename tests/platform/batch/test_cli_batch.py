"""`headpond batch`, against a server whose worker is at work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from socket import create_server

import pytest
from typer.testing import CliRunner, Result

from batch_server import ENDPOINT, MODEL, batch_server, line, lines
from headpond import Client
from headpond.cli import app


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with batch_server(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture(autouse=True)
def located(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADPOND_BASE_URL", base_url)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["batch", *words])


def uploads() -> int:
    with Client() as client:
        return len(client.files.list(purpose="batch", limit=100).data)


def submit(tmp_path: Path, content: bytes, *words: str) -> Result:
    path = tmp_path / "in.jsonl"
    path.write_bytes(content)
    return run("submit", str(path), "--endpoint", ENDPOINT, *words)


def test_a_batch_is_submitted_watched_and_its_results_written(tmp_path: Path) -> None:
    submitted = submit(tmp_path, lines(line("a", "one"), line("b", "two")))
    assert submitted.exit_code == 0, submitted.output
    identifier = submitted.stdout.strip()
    watched = run("watch", identifier)
    assert watched.exit_code == 0
    assert watched.stdout.strip() == identifier
    assert "completed: 2 answered, 0 failed of 2" in watched.stderr
    written = tmp_path / "out.jsonl"
    assert run("results", identifier, "--output", str(written)).exit_code == 0
    found = {each["custom_id"] for each in map(json.loads, written.read_text().splitlines())}
    assert found == {"a", "b"}
    listed = json.loads(run("list", "--json").stdout)
    assert identifier in [batch["id"] for batch in listed["data"]]
    assert identifier in run("list").stdout
    cancelled = run("cancel", identifier)
    assert cancelled.exit_code == 1
    assert "completed" in cancelled.stderr


def test_results_that_cannot_be_written_are_wrong_usage(tmp_path: Path) -> None:
    identifier = submit(tmp_path, lines(line("a")), "--wait").stdout.strip()
    for output in (tmp_path / "missing" / "out.jsonl", tmp_path):
        done = run("results", identifier, "--output", str(output))
        assert (done.exit_code, done.stdout) == (2, "")
        assert "--output" in done.stderr
        assert isinstance(done.exception, SystemExit)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_what_is_tried_again_is_told_on_standard_error() -> None:
    with create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = run("list", "--json", "--base-url", f"http://127.0.0.1:{port}")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "retry" in done.stderr


def test_records_that_failed_are_told_by_the_exit_code(tmp_path: Path) -> None:
    wrong = json.dumps(
        {"custom_id": "w", "method": "POST", "url": ENDPOINT, "body": {"model": MODEL}}
    )
    done = submit(tmp_path, lines(line("a"), wrong), "--wait", "--json", "--metadata", "for=cli")
    assert done.exit_code == 3
    batch = json.loads(done.stdout)
    assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    assert batch["metadata"] == {"for": "cli"}
    shown = run("results", batch["id"])
    assert shown.exit_code == 3
    assert [json.loads(text)["custom_id"] for text in shown.stdout.splitlines()] == ["a", "w"]


def test_a_key_makes_one_batch_of_the_same_file(tmp_path: Path) -> None:
    content = lines(line("once"))
    before = uploads()
    first, again = (submit(tmp_path, content, "--idempotency-key", "once") for _ in range(2))
    assert (first.exit_code, again.exit_code) == (0, 0), again.output
    assert first.stdout == again.stdout
    assert uploads() == before + 1
    other = submit(tmp_path, lines(line("other")), "--idempotency-key", "once")
    assert other.exit_code == 1
    assert "Traceback" not in other.output


def test_what_is_wrong_with_a_file_is_listed(tmp_path: Path) -> None:
    failed = submit(tmp_path, lines(line("a"), "{"), "--wait")
    assert failed.exit_code == 1
    assert "line 2: invalid_json_line" in failed.stderr
    assert submit(tmp_path, lines(line("a"), "{"), "--wait", "--skip-invalid").exit_code == 3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("watch", "batch_none"), 1),
        (("submit", __file__, "--endpoint", "/v1/none"), 1),
        (("submit", __file__, "--endpoint", ENDPOINT, "--metadata", "x"), 2),
        (("submit", "no-such-file", "--endpoint", ENDPOINT), 2),
        (("list", "--limit", "0"), 2),
    ],
)
def test_wrong_usage_and_refusals_have_their_own_codes(words: tuple[str, ...], code: int) -> None:
    done = run(*words)
    assert done.exit_code == code
    assert "Traceback" not in done.output
