"""What HAProxy answers by itself, and that it ends with who started it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headpond.haproxy import name_errors

DEFAULTS = """\
defaults
    errorfile 502 /serve/500.http
    errorfile 503 /serve/500.http
    errorfile 504 /serve/500.http
frontend http_frontend
    bind 127.0.0.1:8000
{served}
    default_backend default_backend
backend default_backend
    http-request return status 404 content-type text/plain lf-string "Path '%[path]' not found. x"
"""
SERVED = "    use_backend app if is_app"


def answer(config: Path, line: str) -> tuple[int, dict[str, str], str]:
    """Return status, headers and error code of what a line of the config answers with."""
    (found,) = [each for each in config.read_text().splitlines() if each.strip().startswith(line)]
    head, body = Path(found.split()[-1]).read_bytes().decode().split("\r\n\r\n", 1)
    first, *fields = head.split("\r\n")
    headers = dict(field.split(": ", 1) for field in fields)
    assert int(headers["content-length"]) == len(body.encode())
    return int(first.split()[1]), headers, json.loads(body)["error"]["code"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "haproxy.cfg"
    path.write_text(DEFAULTS.format(served=SERVED))
    return path


def test_a_process_that_died_is_an_error_that_says_to_send_again(config: Path) -> None:
    name_errors(config)
    for line in ("errorfile 502", "errorfile 504"):
        status, headers, code = answer(config, line)
        assert (status, code) == (502, "worker_lost")
        assert headers["x-should-retry"] == "true"
        assert headers["retry-after"] == "1"
    status, headers, code = answer(config, "errorfile 503")
    assert (status, code, headers["retry-after"]) == (503, "model_not_ready", "1")


def test_an_address_of_no_application_is_not_found(config: Path) -> None:
    name_errors(config)
    status, headers, code = answer(config, "http-request return status 404 errorfile")
    assert (status, code, headers["x-should-retry"]) == (404, "not_found", "false")


def test_while_nothing_is_served_all_may_come_back(config: Path) -> None:
    config.write_text(DEFAULTS.format(served=""))
    name_errors(config)
    status, headers, code = answer(config, "http-request return status 503 errorfile")
    assert (status, code, headers["retry-after"]) == (503, "model_not_ready", "1")


def test_where_a_router_was_it_may_come_back(config: Path) -> None:
    """A controller that starts again knows of one application before it knows of the others."""
    served = config.read_text()
    config.write_text(
        DEFAULTS.format(served="    acl is_router path_beg /\n    use_backend router")
    )
    name_errors(config)
    config.write_text(served)
    name_errors(config)
    status, _, code = answer(config, "http-request return status 503 errorfile")
    assert (status, code) == (503, "model_not_ready")


def test_naming_errors_twice_changes_nothing(config: Path) -> None:
    name_errors(config)
    text = config.read_text()
    name_errors(config)
    assert config.read_text() == text
    assert "/serve/500.http" not in text


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells of a parent's end")
def test_it_is_told_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "told"
    child = (
        "import signal, sys, time; from headpond.haproxy import end_with_parent\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (open(sys.argv[1], 'w').close(), sys.exit()))\n"
        "end_with_parent(); print('ready', flush=True); time.sleep(60)"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}, sys.argv[1]])\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(told)], stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        lines = {started.stdout.readline().strip(), started.stdout.readline().strip()}
        (pid,) = lines - {"ready"}
        orphan = psutil.Process(int(pid))
        started.kill()
    orphan.wait(timeout=20)
    assert told.exists()
