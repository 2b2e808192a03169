"""`headpond down` ends what left a note that it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headpond.cli import app

PLATFORM = """
import signal, sys, time
from headpond.cli.running import noted

signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    with noted(sys.argv[1]) as ready:
        ready()
        print("up", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    print("stopped")
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["down", *words])


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def started(port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PLATFORM, f"http://127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.fixture
def two() -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    pair = started(8101), started(8102)
    yield pair
    for process in pair:
        process.kill()
        with process:  # waits, and closes its pipe
            pass


def test_the_one_that_is_meant_is_stopped(
    two: tuple[subprocess.Popen[str], subprocess.Popen[str]],
) -> None:
    first, second = two
    both = run()
    assert both.exit_code == 2
    assert "more than one" in both.stderr
    assert run("--port", "8103").exit_code == 2
    done = run("--port", "8102")
    assert done.exit_code == 0, done.output
    assert "http://127.0.0.1:8102" in done.stderr
    assert second.stdout is not None
    assert second.stdout.read() == "stopped\n"
    assert first.poll() is None
    assert run().exit_code == 0
    assert first.wait() == 0
    assert run().exit_code == 2


def test_notes_of_what_has_ended_are_thrown_away(tmp_path: Path) -> None:
    process = started(8104)
    process.kill()
    with process:
        pass
    (note,) = tmp_path.rglob("*.json")
    assert run().exit_code == 2
    assert not note.exists()
