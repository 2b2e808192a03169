"""Batches over prefixes by HTTP, our client and the CLI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from batch_server import ENDPOINT, batch_server, line, lines
from headpond import Client
from headpond.cli import app
from headpond.errors import InvalidRequest
from headpond.jobs.settings import JobStore


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "lake/in").mkdir(parents=True)
    (tmp_path / "lake/in/a.jsonl").write_bytes(lines(line("a"), line("b")))
    return tmp_path / "lake"


@pytest.fixture
def base_url(lake: Path, tmp_path: Path) -> Iterator[str]:
    jobs = JobStore(folder=str(tmp_path / "data"), roots=(f"file://{lake}",))
    with batch_server(tmp_path, jobs=jobs) as url:
        yield url


def names(folder: Path) -> set[str]:
    content = (folder / "part-00000.jsonl").read_text()
    return {json.loads(text)["custom_id"] for text in content.splitlines()}


def test_our_client_makes_a_batch_over_a_prefix(base_url: str, lake: Path) -> None:
    with Client(base_url=base_url) as client:
        made = client.batches.create(
            input_url=f"file://{lake}/in", output_url=f"file://{lake}/out", endpoint=ENDPOINT
        )
        assert (made.input_file_id, made.manifest_url) == (None, None)
        batch = client.batches.wait(made.id, poll_s=0.02)
        assert batch.status == "completed"
        assert batch.manifest_url == f"file://{lake}/out/manifest.json"
        assert batch.output is not None
        with pytest.raises(InvalidRequest, match="manifest"):
            list(client.batches.results(batch))
    assert names(lake / "out") == {"a", "b"}


def test_the_command_line_makes_a_batch_over_a_prefix(base_url: str, lake: Path) -> None:
    prefixes = ["--input-url", f"file://{lake}/in", "--output-url", f"file://{lake}/out"]
    words = ["batch", "submit", "--endpoint", ENDPOINT, "--base-url", base_url]
    done = CliRunner().invoke(app, [*words, *prefixes, "--wait"])
    assert done.exit_code == 0, done.output
    assert "manifest.json" in done.stderr
    assert names(lake / "out") == {"a", "b"}
    assert CliRunner().invoke(app, [*words, *prefixes]).exit_code == 1  # it is not empty now
    assert CliRunner().invoke(app, [*words, *prefixes[:2]]).exit_code == 2
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"input": {"url": "file:///etc"}}, "input.url"),
        ({"input": {"url": "LAKE/../in"}}, "input.url"),
        ({"input": {"url": "LAKE/none"}}, "input.url"),
        ({"input": {"url": "LAKE/in", "format": "csv"}}, "input.format"),
        ({"input": {"url": "LAKE/in", "columns": {"text": "a"}}}, "input.columns"),
        ({"input": {}}, "input.url"),
        ({"output": {"url": "file:///tmp/out"}}, "output.url"),
        ({"output": {"url": "LAKE/in/out"}}, "output.url"),
        ({"output": {"url": "LAKE/full"}}, "output.url"),
        ({"output": None}, "output"),
        ({"input": None}, "input_file_id"),
        ({"input_file_id": "file-1"}, "input"),
    ],
)
def test_a_wrong_place_is_named(
    base_url: str, lake: Path, changed: dict[str, object], param: str
) -> None:
    (lake / "full").mkdir()
    (lake / "full/notes.txt").write_text("mine")
    body = {
        "input": {"url": "LAKE/in"},
        "output": {"url": "LAKE/out"},
        "endpoint": ENDPOINT,
        "completion_window": "24h",
        **changed,
    }
    text = json.dumps(body).replace("LAKE", f"file://{lake}")
    answer = httpx2.post(f"{base_url}/v1/batches", content=text)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_without_roots_only_files_are_read(lake: Path, tmp_path: Path) -> None:
    jobs = JobStore(folder=str(tmp_path / "data"))
    with (
        batch_server(tmp_path, jobs=jobs, workers=0) as url,
        Client(base_url=url) as client,
        pytest.raises(InvalidRequest, match="roots") as caught,
    ):
        client.batches.create(
            input_url=f"file://{lake}/in", output_url=f"file://{lake}/out", endpoint=ENDPOINT
        )
    assert caught.value.param == "input.url"


@pytest.mark.parametrize("root", ["lake", "nothing://bucket", "file:///a/../b", "file://"])
def test_a_root_that_is_none_is_told_at_the_start(root: str) -> None:
    with pytest.raises(ValueError, match="roots"):
        JobStore(roots=(root,))
