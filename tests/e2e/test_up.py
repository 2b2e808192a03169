"""What `headpond up` says of a config or a bundle that cannot serve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headpond.ray_env import free_port
from headpond.testing.echo import write_echo_bundle
from headpond.testing.install import declare_workload

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]


def up(folder: Path, config: dict[str, object]) -> subprocess.CompletedProcess[str]:
    """Run `headpond up` with a config until it gives up."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    declared = declare_workload(folder / "declared", "echo", "headpond.testing.echo:record")
    return subprocess.run(
        [sys.executable, "-m", "headpond.cli", "up", str(path), "--port", str(free_port())],
        env={"PYTHONPATH": str(declared), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
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
