"""What `headpond up` says of a config or a bundle that cannot serve."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
import pytest

from headpond.ray_env import free_port
from headpond.testing.echo import write_echo_bundle
from headpond.testing.install import declare_workload
from testbed import Platform, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]


def command(folder: Path, config: dict[str, object], port: int) -> tuple[list[str], dict[str, str]]:
    """Return `headpond up` with a config, and its environment."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    declared = declare_workload(folder / "declared", "echo", "headpond.testing.echo:record")
    paths = os.pathsep.join(filter(None, [str(declared), os.environ.get("PYTHONPATH", "")]))
    env = {"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return [sys.executable, "-m", "headpond.cli", "up", str(path), "--port", str(port)], env


def up(folder: Path, config: dict[str, object], *more: str) -> subprocess.CompletedProcess[str]:
    """Run `headpond up` with a config until it gives up."""
    words, env = command(folder, config, free_port())
    return subprocess.run(
        [*words, *more], env=env, capture_output=True, text=True, timeout=150, check=False
    )


def model(**args: object) -> dict[str, object]:
    """A config with one model."""
    application = {
        "name": "echo",
        "route_prefix": "/models/echo",
        "import_path": "headpond.deployment:build",
        "args": {"alias": "echo", **args},
    }
    return {"applications": [application]}


def test_a_tampered_bundle_never_becomes_ready_and_is_named(tmp_path: Path) -> None:
    bundle = write_echo_bundle(tmp_path / "echo")
    (bundle / "voice.json").write_text('{"voice": "loud"}\n')
    done = up(tmp_path, model(bundle=str(bundle)))
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "echo: BundleError: artifact 'voice'" in said
    assert "Traceback" not in said


def test_a_mistyped_argument_is_named_before_anything_starts(tmp_path: Path) -> None:
    done = up(tmp_path, model(bundle="x", max_slot=3))
    assert done.returncode == 1
    assert "max_slot: Extra inputs are not permitted" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_mistyped_config_is_named(tmp_path: Path) -> None:
    done = up(tmp_path, {"aplications": []})
    assert done.returncode == 1
    assert "applications" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_platform_whose_control_store_dies_ends_with_all_that_it_started(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "up.log"
    words, env = command(tmp_path, model(bundle=str(write_echo_bundle(tmp_path / "echo"))), port)
    with (
        log.open("wb") as output,
        subprocess.Popen(words, env=env, stdout=output, stderr=output) as running,
    ):
        platform = Platform(
            base_url=f"http://127.0.0.1:{port}", process=psutil.Process(running.pid), log=log
        )
        started: list[psutil.Process] = []
        try:
            wait_ready(platform, running)
            started += platform.process.children(recursive=True)
            (store,) = platform.processes("gcs_server")
            store.kill()
            assert running.wait(timeout=60) == 1
            assert psutil.wait_procs(started, timeout=5)[1] == []
        finally:
            running.kill()
            for process in started:
                if process.is_running():
                    process.kill()
    assert "gcs_server has died" in " ".join(log.read_text().split())


@pytest.mark.long
def test_one_that_is_detached_returns_when_it_is_ready_and_is_stopped_by_down(
    tmp_path: Path,
) -> None:
    done = up(tmp_path, model(bundle=str(write_echo_bundle(tmp_path / "echo"))), "--detach")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    stop = re.search(r"`headpond (down --port \d+)` stops it", said)
    assert stop
    _, env = command(tmp_path, model(), free_port())
    words = [sys.executable, "-m", "headpond.cli", *stop[1].split()]
    subprocess.run(words, env=env, capture_output=True, timeout=60, check=True)


def test_one_that_is_detached_and_fails_says_why(tmp_path: Path) -> None:
    done = up(tmp_path, {"aplications": []}, "--detach")
    assert done.returncode == 1
    assert "applications" in done.stderr
    assert "Traceback" not in done.stderr


def routed(bundle: Path) -> dict[str, object]:
    """A config with one model behind a router."""
    router = {
        "name": "router",
        "route_prefix": "/",
        "import_path": "headpond.router:build",
        "deployments": [{"name": "Router", "user_config": {"aliases": {"echo": {"echo": 1}}}}],
    }
    models = model(bundle=str(bundle))["applications"]
    assert isinstance(models, list)
    return {"applications": [router, *models]}


def answers_until_gone(base_url: str, running: subprocess.Popen[bytes]) -> Iterator[int]:
    """Ask through the router again and again until the platform is gone."""
    body = {"model": "echo", "text": "hello"}
    with httpx2.Client(base_url=base_url, timeout=90) as client:
        while running.poll() is None:
            with suppress(httpx2.TransportError):  # HAProxy is gone before the rest
                yield client.post("/v1/echo", json=body).status_code
            time.sleep(0.05)


def test_a_platform_that_is_stopped_serves_calls_or_refuses_them(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "up.log"
    words, env = command(tmp_path, routed(write_echo_bundle(tmp_path / "echo")), port)
    with (
        log.open("wb") as output,
        subprocess.Popen(words, env=env, stdout=output, stderr=output) as running,
    ):
        platform = Platform(
            base_url=f"http://127.0.0.1:{port}", process=psutil.Process(running.pid), log=log
        )
        try:
            wait_ready(platform, running)
            running.send_signal(signal.SIGTERM)
            answers = set(answers_until_gone(platform.base_url, running))
            # Never 408: none waits for a model that takes nothing more.
            assert 200 in answers
            assert answers <= {200, 503}
            assert running.wait(timeout=60) == 0
        finally:
            running.kill()
